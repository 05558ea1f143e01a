"""Operations of the checkpoint hook as files: `operations/<id>.json` in one of two folders.

One that cannot be read costs no other: it is set aside. One that a newer release wrote stays as it
is, for that release to come back to it.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path

from dra_driver import log
from dra_driver.adapters.damaged import LONGEST_REASON, PASSING, set_aside
from dra_driver.adapters.durable import DurableFolder
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Operation
from dra_driver.plan.operation_json import NewerOperation, decode_operation, encode_operation

_log = log.get(__name__)

_ENDING = ".json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PRIVATE = 0o700

_Stamp = tuple[int, int, int, int]
_NO_STAMP: _Stamp = (0, 0, 0, 0)


class OperationFiles:
    """`OperationStore`; one process at a time writes them.

    What need not last lies in the run folder, which is in memory: no call waits there for a disk
    that an image is being written to. An operation goes from there to the other and never back.

    Args:
        state_dir: holds `operations/` of those that last; made when first needed.
        run_dir: the same of those that need not.
    """

    def __init__(self, state_dir: Path, run_dir: Path) -> None:
        self._lasting = _Folder(state_dir / "operations", setting="--state-dir")
        self._passing = _Folder(run_dir / "operations", setting="--run-dir")

    def load(self) -> tuple[Operation, ...]:
        # Where an operation is in both, a process was killed before it removed the older one.
        found = {each.id: each for each in (*self._passing.load(), *self._lasting.load())}
        return tuple(sorted(found.values(), key=lambda each: (each.started_wall_s, each.id)))

    def save(self, operation: Operation, *, lasting: bool = True) -> None:
        name = _name(operation.id)
        if not lasting and not self._lasting.has(name):
            self._passing.save(name, operation)
            return
        self._lasting.save(name, operation, lasting=True)
        self._passing.remove(name)

    def forget(self, operation_id: str) -> None:
        name = _name(operation_id)
        self._passing.remove(name)
        self._lasting.remove(name)
        self._lasting.sync()


class _Folder:
    """Operations in one folder; others that lie there are none of its business."""

    def __init__(self, path: Path, *, setting: str) -> None:
        # Manifests tell of pods and claims: they are nobody else's to read.
        self._folder = DurableFolder(path, setting=setting, mode=0o600)
        self._newer: dict[str, str] = {}
        self._known: dict[str, tuple[_Stamp, Operation]] = {}
        self._told: set[tuple[str, str]] = set()

    def load(self) -> tuple[Operation, ...]:
        if self._folder.path.exists():
            self._make_private()
        self._folder.sweep()
        self._newer = {}
        names = (name for name in self._folder.names() if name.endswith(_ENDING))
        known = {}
        for name in names:
            # First the stamp: what is written meanwhile is read the next time.
            stamp = self._stamp(name)
            operation = None if name.startswith(".") else self._as_known(name, stamp)
            if operation is not None:
                known[name] = (stamp, operation)
        self._known = known
        return tuple(operation for _, operation in known.values())

    def has(self, name: str) -> bool:
        return self._folder.has(name)

    def save(self, name: str, operation: Operation, *, lasting: bool = False) -> None:
        self._refuse_newer(name)
        self._make_private()
        self._known = {}  # who writes has read all there is, and need not look again
        content = encode_operation(operation).encode()
        if lasting:
            self._folder.write(name, content)
        else:
            self._folder.place(name, content, lasting=False)

    def remove(self, name: str) -> None:
        self._refuse_newer(name)
        self._folder.unlink(name)

    def sync(self) -> None:
        self._folder.sync()

    def _make_private(self) -> None:
        path = self._folder.path
        with self._folder.reported("keep others out of"):
            path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            if stat.S_IMODE(path.stat().st_mode) != _PRIVATE:
                path.chmod(_PRIVATE)

    def _stamp(self, name: str) -> _Stamp:
        """What changes with a file that is replaced: its inode is not given anew before."""
        try:
            found = (self._folder.path / name).stat()
        except OSError:
            return _NO_STAMP
        return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _as_known(self, name: str, stamp: _Stamp) -> Operation | None:
        """A plugin that waits for its turn asks every two seconds: it reads what has changed."""
        before, operation = self._known.get(name, (_NO_STAMP, None))
        if stamp != _NO_STAMP and stamp == before:
            return operation
        return self._read(name)

    def _read(self, name: str) -> Operation | None:
        try:
            content = self._folder.read(name)
            operation = decode_operation(content) if content is not None else None
        except OSError as error:
            if error.errno in PASSING:
                with self._folder.reported(f"read {name} from"):
                    raise
            self._set_aside(name, f"it cannot be read: {error.strerror}")
        except NewerOperation as error:
            self._leave_alone(name, str(error))
        except ValueError as error:
            self._set_aside(name, str(error))
        else:
            if operation is None or _name(operation.id) == name:
                return operation
            self._set_aside(name, f"it speaks of operation {operation.id}")
        return None

    def _refuse_newer(self, name: str) -> None:
        if name in self._newer:
            raise AdapterError(
                f"{self._folder.path / name} was written by a newer gpuslice"
                f" ({self._newer[name]}): upgrade this node's plugin again, or choose another id"
                " of an operation",
                permanent=True,
            )

    def _leave_alone(self, name: str, what: str) -> None:
        self._newer[name] = what
        if self._is_news(name, what):
            _log.error(
                "A newer version wrote an operation of the checkpoint hook; it is left alone",
                file=str(self._folder.path / name),
                unknown=what[:LONGEST_REASON],
            )

    def _set_aside(self, name: str, reason: str) -> None:
        try:
            aside = set_aside(self._folder, name)
        except AdapterError as error:
            if self._is_news(name, str(error)):
                _log.error(
                    "Cannot set aside a damaged operation of the checkpoint hook; going on"
                    " without it",
                    error=str(error),
                    reason=reason[:LONGEST_REASON],
                )
            return
        _log.error(
            "Set aside a damaged operation of the checkpoint hook",
            file=str(aside),
            reason=reason[:LONGEST_REASON],
        )

    def _is_news(self, name: str, text: str) -> bool:
        """Whether this was not told yet: a plugin that waits for its turn reads again and again."""
        news = (name, text) not in self._told
        self._told.add((name, text))
        return news


def _name(operation_id: str) -> str:
    if not _ID.fullmatch(operation_id):
        raise AdapterError(f"{operation_id!r} is no id of an operation", permanent=True)
    return f"{operation_id}{_ENDING}"
