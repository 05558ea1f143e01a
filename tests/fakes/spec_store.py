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
        self._check(name)
        if self.broken is not None:
            raise self.broken
        if not self.holds(name, content):
            self.specs[name] = content
            self.writes += 1

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
