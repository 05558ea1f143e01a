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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from types import TracebackType

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.lock_file import LockFile, OpenFile
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

    def claim(self, uid: str, deadline: Deadline) -> AbstractContextManager[None]:
        return _Held(self, _CLAIM, uid, deadline)

    def gpus(self, uuids: tuple[GpuUuid, ...], deadline: Deadline) -> AbstractContextManager[None]:
        """Hold all of `uuids`, taken in sorted order.

        Where `WAITERS_PER_GPU` calls wait for a GPU already, one more waits `patience_s` at most:
        a queue that moves is no reason to send a pod into a retry of more than a minute, a GPU
        that hangs must not hold all workers.
        """
        locks = [_Held(self, _GPU, uuid, deadline) for uuid in sorted(set(uuids))]
        return locks[0] if len(locks) == 1 else _all_of(locks)

    def take(
        self, name: str, lock: _Byte, deadline: Deadline, *, limit: int | None
    ) -> OpenFile | None:
        """Take a lock and give the file that it is a lock of; None: not in time."""
        if not self._queues.enter(name, limit, lambda: self._remaining_s(deadline)):
            return None
        file = None
        try:
            file = self._locked_file(lock, deadline)
        finally:
            if file is None:
                self._queues.leave(name)
        return file

    def leave(self, name: str, lock: _Byte, file: OpenFile) -> None:
        """Let go of what `take` gave."""
        try:
            lock.release(file.descriptor)
        finally:
            self._queues.leave(name)

    def _locked_file(self, lock: _Byte, deadline: Deadline) -> OpenFile | None:
        poll_s = _POLL_FIRST_S
        try:
            file = self._file.open()
            while not lock.take(file.descriptor):
                if self._remaining_s(deadline) <= 0:
                    return None
                Event().wait(poll_s)
                poll_s = min(2 * poll_s, _POLL_LONGEST_S)
        except OSError as error:
            raise self._folder.failure("lock", error) from error
        return file

    def _remaining_s(self, deadline: Deadline) -> float:
        return deadline.remaining_s(self._clock.monotonic_s())


_CLAIM = "claim"
_GPU = "gpu"


class _Held:
    """One lock, held in a block; no generator, as each claim passes here four times."""

    __slots__ = ("_byte", "_deadline", "_file", "_kind", "_locks", "_name", "_uid")

    def __init__(self, locks: FileLocks, kind: str, uid: str, deadline: Deadline) -> None:
        self._locks = locks
        self._kind = kind
        self._uid = uid
        self._name = f"{kind} {uid}"
        self._byte = _Byte(self._name)
        self._deadline = deadline

    def __enter__(self) -> None:
        limit = WAITERS_PER_GPU if self._kind is _GPU else None
        file = self._locks.take(self._name, self._byte, self._deadline, limit=limit)
        if file is None:
            raise self._late()
        self._file = file

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._locks.leave(self._name, self._byte, self._file)

    def _late(self) -> NotReady:
        if self._kind is _GPU:
            text = f"GPU {self._uid} is busy with other claims, it is retried"
            return NotReady(Reason.DEVICE_BUSY, text)
        return NotReady(
            Reason.OUT_OF_TIME,
            f"claim {self._uid} is still being worked on by another call; it is retried, nothing"
            " is lost",
        )


@contextmanager
def _all_of(locks: Iterable[_Held]) -> Iterator[None]:
    with ExitStack() as held:
        for each in locks:
            held.enter_context(each)
        yield


class _Queues:
    """Threads in order of arrival, by name; who has the turn stands in no queue."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._mutex = Lock()
        self._waiting: dict[str, deque[Event]] = {}

    def enter(self, name: str, limit: int | None, remaining_s: Callable[[], float]) -> bool:
        """Wait for the turn; False when the time is over first, or the queue is too long."""
        with self._mutex:
            queue = self._waiting.get(name)
            if queue is None:
                self._waiting[name] = deque()
                return True
            turn = Event()
            queue.append(turn)
        if limit is not None and self._waits_too_far_back(queue, turn, limit, remaining_s()):
            return self._give_up(queue, turn)
        return turn.wait(remaining_s()) or self._give_up(queue, turn)

    def leave(self, name: str) -> None:
        with self._mutex:
            queue = self._waiting[name]
            if queue:
                queue.popleft().set()
            else:
                del self._waiting[name]

    def _waits_too_far_back(
        self, queue: deque[Event], turn: Event, limit: int, remaining_s: float
    ) -> bool:
        with self._mutex:
            too_far = turn in queue and queue.index(turn) >= limit
        if not too_far or turn.wait(min(self._patience_s, remaining_s)):
            return False
        with self._mutex:
            return turn in queue and queue.index(turn) >= limit

    def _give_up(self, queue: deque[Event], turn: Event) -> bool:
        """True where the turn came in the last moment after all."""
        with self._mutex:
            if turn.is_set():
                return True
            queue.remove(turn)
            return False


class _Byte:
    """The byte of a lock file that stands for a name."""

    __slots__ = ("_free", "_mine")

    def __init__(self, name: str) -> None:
        offset = int.from_bytes(sha256(name.encode()).digest()[:8], "big") >> 2
        self._mine = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        self._free = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, offset, 1, 0)

    def take(self, descriptor: int) -> bool:
        """False: another process has it."""
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, self._mine)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, descriptor: int) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, self._free)
