"""Follows containers that run on with broken GPU state after a checkpoint or a restore."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from dra_driver import log
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Operation
from dra_driver.model.cuda import ProcessRef
from dra_driver.model.health import DeviceHealth
from dra_driver.model.record import Record
from dra_driver.plan.broken_state import broken_gpus, processes_left_broken
from dra_driver.ports import ProcessOwners
from dra_driver.state.current import Current

_INTERVAL_S = 2.0

_log = log.get(__name__)


class BrokenStates:
    """Looks every `interval_s`; what cannot be read changes nothing.

    Args:
        operations: of the hook, in the order in which they began.
        records: of all claims.
        owners: tells whether a process still runs.
        target: gets the GPUs concerned.
    """

    def __init__(
        self,
        *,
        operations: Callable[[], tuple[Operation, ...]],
        records: Callable[[], tuple[Record, ...]],
        owners: ProcessOwners,
        target: Current[tuple[DeviceHealth, ...]],
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._operations = operations
        self._records = records
        self._owners = owners
        self._target = target
        self._interval_s = interval_s
        self._told = ""

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            self.look()
            stop.wait(self._interval_s)

    def look(self) -> None:
        """Look once."""
        try:
            found = self._found()
        except AdapterError as error:
            if str(error) != self._told:
                _log.warning("Cannot tell whose GPU state is broken", error=str(error))
            self._told = str(error)
            return
        self._told = ""
        for each in set(found) - set(self._target.get()):
            _log.warning(
                "A container runs on with broken GPU state", gpu=each.uuid, why=each.message
            )
        self._target.set(found)

    def _found(self) -> tuple[DeviceHealth, ...]:
        operations = self._operations()
        ended = frozenset(filter(self._has_ended, processes_left_broken(operations)))
        return broken_gpus(operations, self._records(), ended=ended)

    def _has_ended(self, process: ProcessRef) -> bool:
        owner = self._owners.owner(process.pid)
        return owner is None or owner.started != process.started
