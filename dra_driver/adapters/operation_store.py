"""Operations of the checkpoint hook as files: `<state-dir>/operations/<id>.json`."""

from __future__ import annotations

import re
from pathlib import Path

from dra_driver import log
from dra_driver.adapters.damaged import LONGEST_REASON, set_aside
from dra_driver.adapters.durable import DurableFolder
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Operation
from dra_driver.plan.operation_json import decode_operation, encode_operation

_log = log.get(__name__)

_ENDING = ".json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class OperationFiles:
    """`OperationStore`; one process at a time writes them.

    Args:
        state_dir: holds `operations/`; made when first needed.
    """

    def __init__(self, state_dir: Path) -> None:
        # Manifests tell of pods and claims: they are nobody else's to read.
        self._folder = DurableFolder(state_dir / "operations", setting="--state-dir", mode=0o600)

    def load(self) -> tuple[Operation, ...]:
        self._folder.sweep()
        names = (name for name in self._folder.names() if name.endswith(_ENDING))
        read = (self._read(name) for name in names if not name.startswith("."))
        found = (operation for operation in read if operation is not None)
        return tuple(sorted(found, key=lambda each: (each.started_wall_s, each.id)))

    def save(self, operation: Operation) -> None:
        self._folder.write(_name(operation.id), encode_operation(operation).encode())

    def forget(self, operation_id: str) -> None:
        if self._folder.unlink(_name(operation_id)):
            self._folder.sync()

    def _read(self, name: str) -> Operation | None:
        with self._folder.reported(f"read {name} from"):
            content = self._folder.read(name)
        if content is None:
            return None
        try:
            operation = decode_operation(content)
        except ValueError as error:
            self._set_aside(name, str(error))
            return None
        if f"{operation.id}{_ENDING}" != name:
            self._set_aside(name, f"it speaks of operation {operation.id}")
            return None
        return operation

    def _set_aside(self, name: str, reason: str) -> None:
        aside = set_aside(self._folder, name)
        _log.error(
            "Set aside a damaged operation of the checkpoint hook",
            file=str(aside),
            reason=reason[:LONGEST_REASON],
        )


def _name(operation_id: str) -> str:
    if not _ID.fullmatch(operation_id):
        raise AdapterError(f"{operation_id!r} is no id of an operation", permanent=True)
    return f"{operation_id}{_ENDING}"
