"""The socket that gpuslice-hook calls: one request and one answer for each connection."""

from __future__ import annotations

import select
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import BoundedSemaphore, Event, Thread
from typing import Protocol

from dra_driver import log
from dra_driver.checkpoint.raw_calls import closes
from dra_driver.checkpoint.raw_line import (
    MAX_LINE,
    OK,
    RawLineError,
    RawRequest,
    decode_body,
    decode_head,
)
from dra_driver.errors import FatalError
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Clock
from dra_driver.sockets import bound_path, make_way, private_folder, publish

CALLS_MAX = 32
"""At one time; whoever comes then is turned away, and does as when the driver is away."""

READ_S = 1.0
ANSWER_S = 4.0
"""The program waits for 5 s, CRIU and the kubelet behind it."""

_CREDENTIALS = struct.Struct("3i")
_BACKLOG = 64
_CHUNK = 4096
_PAUSE_S = 0.1

_log = log.get(__name__)


class Answers(Protocol):
    def answer(self, raw: RawRequest, peer_pid: int, deadline: Deadline) -> bytes:
        """Give the bytes to send, for a request and the caller's process id."""
        ...

    def unheard(self, raw: RawRequest, peer_pid: int, deadline: Deadline) -> None:
        """Undo what was begun for a caller who left before the answer that let it go on."""
        ...


class RawSocket:
    """Serves from `start` to `stop`; each is called once, by who holds the instance's lock.

    Args:
        path: of the socket.
        calls: decide.
        clock: of deadlines.
        uid: who may call.
    """

    def __init__(self, path: Path, calls: Answers, *, clock: Clock, uid: int = 0) -> None:
        self._path = path
        self._calls = calls
        self._clock = clock
        self._uid = uid
        self._room = BoundedSemaphore(CALLS_MAX)
        self._stopping = Event()
        self._owned = ExitStack()

    def start(self) -> None:
        """Raises FatalError where the socket cannot be made, or another process serves there."""
        with ExitStack() as undo:
            listener = undo.enter_context(self._listen(undo))
            workers = undo.enter_context(ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="hook"))
            thread = Thread(target=self._accept, args=(listener, workers), name="hook-accept")
            undo.callback(thread.join)
            # Wakes the thread, which closing alone would not.
            undo.callback(_shut, listener)
            undo.callback(self._stopping.set)
            thread.start()
            self._owned = undo.pop_all()
        _log.info("Serving gpuslice-hook", socket=str(self._path))

    def stop(self) -> None:
        """Calls in flight get their answers first."""
        self._owned.close()

    def _listen(self, undo: ExitStack) -> socket.socket:
        try:
            make_way(self._path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                bound = bound_path(self._path)
                with private_folder(bound.parent):
                    listener.bind(str(bound))
                    listener.listen(_BACKLOG)
                    undo.callback(publish(self._path, bound=bound).withdraw)
            except BaseException:
                listener.close()
                raise
        except OSError as error:
            raise FatalError(
                f"cannot make the socket {self._path}: {error.strerror or error}"
            ) from error
        return listener

    def _accept(self, listener: socket.socket, workers: ThreadPoolExecutor) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                # Whatever else it is, such as too many open files, may pass.
                if self._stopping.wait(_PAUSE_S):
                    return
                _log.warning("Cannot take a call of gpuslice-hook", error=str(error))
                continue
            if not self._room.acquire(blocking=False):
                _log.warning("Turned a call of gpuslice-hook away", at_one_time=CALLS_MAX)
                connection.close()
                continue
            workers.submit(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                self._converse(connection)
        except OSError as error:
            # The program has its own patience; that it left is its own business.
            _log.info("A call of gpuslice-hook was cut off", error=str(error))
        finally:
            self._room.release()

    def _converse(self, connection: socket.socket) -> None:
        pid, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        if uid != self._uid:
            _log.warning("Refused a caller of gpuslice-hook's socket", uid=uid, pid=pid)
            return
        started_s = self._clock.monotonic_s()
        try:
            request = self._read(connection, Deadline(started_s + READ_S))
        except RawLineError as error:
            # A program of another release, perhaps. Without an answer it does as while we are away.
            _log.warning("Did not understand a call of gpuslice-hook", error=str(error))
            return
        if closes(request.head) and _has_left(connection):
            # It waited while this process was held up, and has stopped the container by itself.
            _log.warning("A call of gpuslice-hook came too late", phase=request.head.phase.value)
            return
        answer = self._calls.answer(request, pid, Deadline(started_s + ANSWER_S))
        connection.settimeout(READ_S)
        try:
            connection.sendall(answer)
        except OSError:
            if answer == OK:
                now_s = self._clock.monotonic_s()
                self._calls.unheard(request, pid, Deadline(now_s + ANSWER_S))
            raise

    def _read(self, connection: socket.socket, deadline: Deadline) -> RawRequest:
        """Raises RawLineError, or OSError where nothing comes in time."""
        data = self._some(connection, deadline)
        while b"\n" not in data:
            if len(data) >= MAX_LINE:
                raise RawLineError(f"no line ends within the first {MAX_LINE} bytes")
            data += self._some(connection, deadline)
        end = data.index(b"\n") + 1
        head = decode_head(data[:end])
        while len(data) < end + head.length:
            data += self._some(connection, deadline)
        return decode_body(head, data[end:])

    def _some(self, connection: socket.socket, deadline: Deadline) -> bytes:
        left_s = deadline.remaining_s(self._clock.monotonic_s())
        if left_s <= 0:
            raise TimeoutError("it did not send its request in time")
        connection.settimeout(left_s)
        data = connection.recv(_CHUNK)
        if not data:
            raise RawLineError("it ended in the middle of its request")
        return data


def _has_left(connection: socket.socket) -> bool:
    """Whether nobody is at the other end; one that only says no more still listens."""
    poller = select.poll()
    poller.register(connection, 0)
    return bool(poller.poll(0))


def _shut(listener: socket.socket) -> None:
    with suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
