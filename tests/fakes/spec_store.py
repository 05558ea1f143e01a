"""A SpecStore in memory."""

from __future__ import annotations

from dra_driver.errors import AdapterError


class FakeSpecStore:
    """`broken`: an error that every write raises while it is set; `writes` counts real ones.

    `settled`: what a power cut would leave.
    """

    def __init__(self, *, prefix: str) -> None:
        self._prefix = prefix
        self.specs: dict[str, str] = {}
        self.writes = 0
        self.settled: dict[str, str] = {}
        self.broken: AdapterError | None = None

    def write(self, name: str, content: str) -> None:
        self.stage(name, content).place()

    def stage(self, name: str, content: str) -> _Staged:
        self._check(name)
        if self.broken is not None:
            raise self.broken
        return _Staged(self, name, content)

    def holds(self, name: str, content: str) -> bool:
        self._check(name)
        return self.specs.get(name) == content

    def remove(self, name: str) -> None:
        self._check(name)
        self.specs.pop(name, None)

    def settle(self) -> None:
        self.settled = dict(self.specs)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in self.specs if name.startswith(self._prefix)))

    def _check(self, name: str) -> None:
        if not name.startswith(self._prefix):
            raise AdapterError(f"{name!r} is not one of this driver's specs", permanent=True)


class _Staged:
    def __init__(self, store: FakeSpecStore, name: str, content: str) -> None:
        self._store = store
        self._name = name
        self._content = content

    def place(self) -> None:
        if not self._store.holds(self._name, self._content):
            self._store.specs[self._name] = self._content
            self._store.writes += 1

    def close(self) -> None: ...
