"""An OperationStore in memory that can be killed between its saves."""

from __future__ import annotations

from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Operation, OperationState
from dra_driver.plan.operation_json import decode_operation, encode_operation


class KilledError(BaseException):
    """Here the process ends: nothing may handle it."""


class MemoryStore:
    """`OperationStore` that keeps what would be on disk.

    Attributes:
        saves: of each save the state, and whether it lasts.
        kills: saves at which the process is killed, by number: before it (False) or after (True).
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.broken = False
        self.saves: list[tuple[OperationState, bool]] = []
        self.kills: dict[int, bool] = {}
        self._lasting: set[str] = set()

    def load(self) -> tuple[Operation, ...]:
        found = [decode_operation(each) for each in self.files.values()]
        return tuple(sorted(found, key=lambda each: (each.started_wall_s, each.id)))

    def save(self, operation: Operation, *, lasting: bool = True) -> None:
        if self.broken:
            raise AdapterError("the disk is full: free space")
        number = len(self.saves)
        if self.kills.get(number) is False:
            raise KilledError
        if lasting:
            self._lasting.add(operation.id)
        self.saves.append((operation.state, operation.id in self._lasting))
        self.files[operation.id] = encode_operation(operation).encode()
        if self.kills.get(number):
            raise KilledError

    def power_cut(self) -> None:
        """Lose all that may be lost."""
        self.files = {each: self.files[each] for each in self._lasting & self.files.keys()}

    def forget(self, operation_id: str) -> None:
        self.files.pop(operation_id, None)
