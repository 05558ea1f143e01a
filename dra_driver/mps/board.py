"""States of GPUs for all who follow them; slow readers get the newest."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition, Event

from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing

PAUSE_S = 0.05
"""A reader that has got news looks again after this at the earliest, and finds a burst as one."""


class StateBoard:
    """The newest state of each GPU, and how often anything changed. Thread-safe."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._states: dict[GpuUuid, GpuSharing] = {}
        self._revision = 0
        self._closed = False

    def put(self, state: GpuSharing) -> None:
        with self._changed:
            if self._states.get(state.gpu) != state:
                self._states[state.gpu] = state
                self._notify()

    def keep(self, gpus: frozenset[GpuUuid]) -> None:
        """Drop all other GPUs, and show those that are new as free."""
        with self._changed:
            new, gone = gpus - self._states.keys(), self._states.keys() - gpus
            for gpu in gone:
                del self._states[gpu]
            for gpu in new:
                self._states[gpu] = GpuSharing(gpu=gpu)
            if new or gone:
                self._notify()

    def get(self, gpu: GpuUuid) -> GpuSharing:
        with self._changed:
            return self._states.get(gpu) or GpuSharing(gpu=gpu)

    def watch(self) -> BoardWatch:
        return BoardWatch(self)

    def close(self) -> None:
        """End all watches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def after(self, revision: int, watch: BoardWatch) -> tuple[int, tuple[GpuSharing, ...]] | None:
        """Wait for a revision other than this one; None where the watch or all is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or watch.closed or self._revision != revision
            )
            if self._closed or watch.closed:
                return None
            return self._revision, tuple(self._states[gpu] for gpu in sorted(self._states))

    def wake(self) -> None:
        """Let all who wait look again."""
        with self._changed:
            self._changed.notify_all()

    def _notify(self) -> None:
        self._revision += 1
        self._changed.notify_all()


class BoardWatch:
    """The `SharingWatch` of a board."""

    def __init__(self, board: StateBoard) -> None:
        self._board = board
        self._closed = Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def __iter__(self) -> Iterator[tuple[GpuSharing, ...]]:
        revision = -1
        while (found := self._board.after(revision, self)) is not None:
            revision, states = found
            yield states
            # Telling takes longer than a share does, on both sides.
            self._closed.wait(PAUSE_S)

    def close(self) -> None:
        self._closed.set()
        self._board.wake()
