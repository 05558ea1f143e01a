"""Locks of one process, in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Condition

from dra_driver.errors import NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.ports import Clock


class FakeLocks:
    """Refuses the fifth waiter of a GPU at once, where the real ones give it a moment."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._changed = Condition()
        self._held: set[str] = set()
        self._waiting: dict[str, int] = defaultdict(int)

    @contextmanager
    def claim(self, uid: str, deadline: Deadline) -> Iterator[None]:
        late = NotReady(Reason.OUT_OF_TIME, f"claim {uid} is still being worked on")
        with self._lock(f"claim {uid}", deadline, late, limit=None):
            yield

    @contextmanager
    def gpus(self, uuids: tuple[GpuUuid, ...], deadline: Deadline) -> Iterator[None]:
        with ExitStack() as stack:
            for uuid in sorted(set(uuids)):
                busy = NotReady(Reason.DEVICE_BUSY, f"GPU {uuid} is busy with other claims")
                stack.enter_context(self._lock(f"gpu {uuid}", deadline, busy, limit=4))
            yield

    @contextmanager
    def _lock(
        self, name: str, deadline: Deadline, late: NotReady, *, limit: int | None
    ) -> Iterator[None]:
        with self._changed:
            if limit is not None and name in self._held and self._waiting[name] >= limit:
                raise late
            self._waiting[name] += 1
            left_s = deadline.remaining_s(self._clock.monotonic_s())
            got = self._changed.wait_for(lambda: name not in self._held, left_s)
            self._waiting[name] -= 1
            if not got:
                raise late
            self._held.add(name)
        try:
            yield
        finally:
            with self._changed:
                self._held.discard(name)
                self._changed.notify_all()
