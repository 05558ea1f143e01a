"""Locks that exclude threads of one process and other plugin processes alike.

Each lock is one byte of one lock file, at an offset that is a hash of its name, held as an open
file description lock (Linux, fcntl F_OFD_SETLK). So there is one file however many claims come and
go, nothing is left to clean up, and the kernel frees the locks of a process that dies.

The kernel tells processes apart, which open the file once each. Threads of one process queue in
order of arrival; only the first of them asks the kernel.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.lock_file import LockFile
from dra_driver.errors import NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.ports import Clock

WAITERS_PER_GPU = 4
"""Calls of this process that may wait for one slow GPU; the workers beyond are for other GPUs."""

PATIENCE_S = 2.0
"""What one more waits for such a GPU."""

_POLL_FIRST_S = 0.001
_POLL_LONGEST_S = 0.02
_FLOCK = struct.Struct("hhqqi4x")
_FILE = "locks"


class FileLocks:
    """The Locks of a node.

    Args:
        folder: holds the lock file; made when first needed. All plugin processes of the node must
            name the same one.
        patience_s: how long a call waits that finds `WAITERS_PER_GPU` before it.
    """

    def __init__(self, folder: Path, *, clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._folder = DurableFolder(folder, setting="--state-dir")
        self._file = LockFile(folder / _FILE)
        self._clock = clock
        self._queues = _Queues(patience_s)

    @contextmanager
    def claim(self, uid: str, deadline: Deadline) -> Iterator[None]:
        late = (
            f"claim {uid} is still being worked on by another call; it is retried, nothing is lost"
        )
        with self._held(f"claim {uid}", deadline, NotReady(Reason.OUT_OF_TIME, late), limit=None):
            yield

    @contextmanager
    def gpus(self, uuids: tuple[GpuUuid, ...], deadline: Deadline) -> Iterator[None]:
        """Hold all of `uuids`, taken in sorted order.

        Where `WAITERS_PER_GPU` calls wait for a GPU already, one more waits `patience_s` at most:
        a queue that moves is no reason to send a pod into a retry of more than a minute, a GPU
        that hangs must not hold all workers.
        """
        with ExitStack() as held:
            for uuid in sorted(set(uuids)):
                busy = NotReady(
                    Reason.DEVICE_BUSY, f"GPU {uuid} is busy with other claims, it is retried"
                )
                held.enter_context(self._held(f"gpu {uuid}", deadline, busy, limit=WAITERS_PER_GPU))
            yield

    @contextmanager
    def _held(
        self, name: str, deadline: Deadline, late: NotReady, *, limit: int | None
    ) -> Iterator[None]:
        if not self._queues.enter(name, limit, lambda: self._remaining_s(deadline)):
            raise late
        try:
            with self._folder.reported("lock"):
                file = self._file.open()
            self._lock_byte(file.descriptor, name, deadline, late)
            try:
                yield
            finally:
                _set_lock(file.descriptor, fcntl.F_UNLCK, name)
        finally:
            self._queues.leave(name)

    def _lock_byte(self, descriptor: int, name: str, deadline: Deadline, late: NotReady) -> None:
        poll_s = _POLL_FIRST_S
        while not self._try_lock(descriptor, name):
            if self._remaining_s(deadline) <= 0:
                raise late
            Event().wait(poll_s)
            poll_s = min(2 * poll_s, _POLL_LONGEST_S)

    def _try_lock(self, descriptor: int, name: str) -> bool:
        with self._folder.reported("lock"):
            try:
                _set_lock(descriptor, fcntl.F_WRLCK, name)
            except (BlockingIOError, PermissionError):
                return False
            return True

    def _remaining_s(self, deadline: Deadline) -> float:
        return deadline.remaining_s(self._clock.monotonic_s())


class _Queues:
    """Threads in order of arrival, by name; the first of a queue has the turn."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._mutex = Lock()
        self._queues: dict[str, deque[Event]] = {}

    def enter(self, name: str, limit: int | None, remaining_s: Callable[[], float]) -> bool:
        """Wait for the turn; False when the time is over first, or the queue is too long."""
        turn = Event()
        with self._mutex:
            queue = self._queues.setdefault(name, deque())
            queue.append(turn)
            if len(queue) == 1:
                turn.set()
        if limit is not None and self._waits_too_far_back(queue, turn, limit, remaining_s()):
            return self._give_up(queue, turn)
        return turn.wait(remaining_s()) or self._give_up(queue, turn)

    def leave(self, name: str) -> None:
        with self._mutex:
            queue = self._queues[name]
            queue.popleft()
            if queue:
                queue[0].set()
            else:
                del self._queues[name]

    def _waits_too_far_back(
        self, queue: deque[Event], turn: Event, limit: int, remaining_s: float
    ) -> bool:
        with self._mutex:
            too_far = queue.index(turn) > limit
        if not too_far or turn.wait(min(self._patience_s, remaining_s)):
            return False
        with self._mutex:
            return queue.index(turn) > limit

    def _give_up(self, queue: deque[Event], turn: Event) -> bool:
        """True where the turn came in the last moment after all."""
        with self._mutex:
            if turn.is_set():
                return True
            queue.remove(turn)
            return False


def _set_lock(descriptor: int, kind: int, name: str) -> None:
    offset = int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 2
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, offset, 1, 0))
