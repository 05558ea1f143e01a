"""A supervisor of shares that tells what a test says, and goes away when it says so."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition

from dra_driver.errors import AdapterError
from dra_driver.model.mps import GpuSharing

States = tuple[GpuSharing, ...]


class FakeSharingStates:
    """Implements SharingStates. `watches` counts how often somebody began to watch."""

    def __init__(self, *states: GpuSharing, away: str = "") -> None:
        self._changed = Condition()
        self._states: States = states
        self._version = 0
        self._session = 0
        self._away = away
        self.watches = 0

    def tell(self, *states: GpuSharing) -> None:
        with self._changed:
            self._states = states
            self._version += 1
            self._changed.notify_all()

    def leave(self, text: str = "the socket is closed") -> None:
        """Break all watches, and let none begin until `come`."""
        with self._changed:
            self._away = text
            self._session += 1
            self._changed.notify_all()

    def come(self, *states: GpuSharing) -> None:
        with self._changed:
            self._away = ""
            self._states = states
            self._changed.notify_all()

    def watch(self) -> _Watch:
        with self._changed:
            if self._away:
                raise AdapterError(self._away)
            self.watches += 1
            return _Watch(self, self._session)

    def next(self, watch: _Watch) -> States | None:
        """What is new for a watch; None when it was closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    watch.closed or self._session != watch.session or watch.version != self._version
                )
            )
            if watch.closed:
                return None
            if self._session != watch.session:
                raise AdapterError(self._away or "the supervisor was started anew")
            watch.version = self._version
            return self._states

    def close(self, watch: _Watch) -> None:
        with self._changed:
            watch.closed = True
            self._changed.notify_all()


class _Watch:
    def __init__(self, source: FakeSharingStates, session: int) -> None:
        self._source = source
        self.session = session
        self.version = -1
        self.closed = False

    def __iter__(self) -> Iterator[States]:
        while (states := self._source.next(self)) is not None:
            yield states

    def close(self) -> None:
        self._source.close(self)
