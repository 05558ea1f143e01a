"""CDI specs as files: `<folder>/<name>.json`.

Other vendors' specs stand in the same folder; they are never opened, changed or removed.
"""

from __future__ import annotations

from pathlib import Path

from dra_driver.adapters.durable import DurableFolder, Staged
from dra_driver.errors import AdapterError
from dra_driver.ports import StagedSpec

_ENDING = ".json"


class CdiFolder:
    """The SpecStore of a node.

    Args:
        path: the folder that container runtimes watch, /var/run/cdi by default.
        prefix: what all names of this driver start with (`plan.naming.spec_prefix`).
    """

    def __init__(self, path: Path, *, prefix: str) -> None:
        # Readable by all: runtimes that run for ordinary users read the same folder.
        self._folder = DurableFolder(path, setting="--cdi-root", mode=0o644)
        self._prefix = prefix

    def write(self, name: str, content: str) -> None:
        staged = self.stage(name, content)
        try:
            staged.place()
        finally:
            staged.close()

    def stage(self, name: str, content: str) -> StagedSpec:
        file = self._file(name)
        # Hardly ever there, and an exception costs more than the question.
        if self._folder.has(file) and self.holds(name, content):
            return _Standing()
        return _Staged(self._folder.staged(file, content.encode()))

    def holds(self, name: str, content: str) -> bool:
        file = self._file(name)
        with self._folder.reported(f"read {file} in"):
            return self._folder.read(file) == content.encode()

    def remove(self, name: str) -> None:
        self._folder.unlink(self._file(name))

    def settle(self) -> None:
        self._folder.sync()

    def names(self) -> tuple[str, ...]:
        self._folder.sweep(self._prefix)
        return tuple(
            name.removesuffix(_ENDING)
            for name in self._folder.names()
            if name.startswith(self._prefix) and name.endswith(_ENDING)
        )

    def _file(self, name: str) -> str:
        if not name.startswith(self._prefix) or "/" in name:
            raise AdapterError(
                f"CDI spec {name!r} is not one of this driver's, which start with"
                f" {self._prefix!r}: report this as a bug",
                permanent=True,
            )
        return f"{name}{_ENDING}"


class _Staged:
    def __init__(self, file: Staged) -> None:
        self._file = file
        self.close = file.close

    def place(self) -> None:
        self._file.commit()


class _Standing:
    """A spec that stands as it is to be."""

    def place(self) -> None: ...

    def close(self) -> None: ...
