"""The socket of `gpuslice mpsd`, which is root's alone.

Who may call is decided by the socket's mode, 0600: connecting needs the right to write to it. There
is no second look at the caller's credentials, as grpcio does not give those of a Unix socket.
"""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import grpc

from dra_api.mpsd import mpsd_v1alpha1_pb2_grpc as mpsd_grpc
from dra_driver import log
from dra_driver.errors import FatalError, SettingsError
from dra_driver.mps.service import MpsdService
from dra_driver.sockets import (
    PATH_MAX_BYTES,
    ServedSocket,
    bind_server,
    bound_path,
    make_way,
    only_process,
    private_folder,
    publish,
)

WORKERS = 32

_STOP_S = 2.0
_LOOK_S = 2.0
_OPTIONS = (
    # A plugin keeps one connection for as long as it lives, and pings it to learn of its end.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)

_log = log.get(__name__)


def check_path(path: Path) -> None:
    """Raises SettingsError where no socket can be at `path`."""
    if not path.is_absolute():
        raise SettingsError(f"--mpsd-socket is {str(path)!r}: give an absolute path")
    size = max(len(os.fsencode(each)) for each in (path, bound_path(path)))
    if size > PATH_MAX_BYTES:
        raise SettingsError(
            f"--mpsd-socket is too long: its socket would be {path} ({size} bytes), and a socket's"
            f" path has at most {PATH_MAX_BYTES} bytes; use a shorter folder or --run-dir"
        )


class MpsdServer:
    """Serves from `start` to `stop`; each is called once."""

    def __init__(self, path: Path, service: MpsdService) -> None:
        self._path = path
        self._service = service
        self._stopping = Event()
        self._socket: ServedSocket | None = None
        self._owned = ExitStack()
        self._server: grpc.Server | None = None
        self._drained = True

    def start(self) -> None:
        """Take the socket's lock, clear away a dead process's socket, and serve.

        Raises:
            FatalError: another process serves this socket, or it cannot be made.
        """
        lock = self._path.with_name(f"{self._path.name}.lock")
        with ExitStack() as undo:
            undo.enter_context(only_process(lock, what=f"serves {self._path}"))
            try:
                self._clear()
            except OSError as error:
                raise FatalError(f"cannot use {self._path.parent}: {error.strerror}") from error
            self._socket = socket = self._serve(undo)
            undo.callback(socket.withdraw)
            self._owned = undo.pop_all()
        _log.info("Serving the plugin", socket=str(self._path))

    def watch(self, stop: Event) -> None:
        """Look after the socket until `stop`, or until the server stops.

        Raises:
            FatalError: it was taken away, so nobody new finds this process.
        """
        while not stop.wait(_LOOK_S):
            stands = self._socket is not None and self._socket.stands()
            if self._stopping.is_set():
                stop.wait()
                return
            if not stands:
                raise FatalError(
                    f"the socket {self._path} was removed or replaced, so that plugins do not find"
                    " this process: it has to start anew; leave files in --run-dir alone"
                )

    def stop(self, *, grace_s: float) -> bool:
        """Refuse calls, and let those in flight finish.

        Returns:
            False when calls are still running: their threads cannot be stopped and would hold up
            the interpreter's exit, so the caller has to end the process with os._exit.
        """
        self._stopping.set()
        self._service.close()
        self._drained = self._service.drained(grace_s)
        if not self._drained:
            _log.warning("Calls of the plugin were cut off", grace_s=grace_s)
        self._owned.close()
        return self._drained

    def _clear(self) -> None:
        folder = self._path.parent.stat()
        if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not folder.st_mode & stat.S_ISVTX:
            raise FatalError(
                f"{self._path.parent} can be written by others (mode"
                f" {stat.S_IMODE(folder.st_mode):04o}), who could put a socket of theirs in place"
                " of this one: chmod go-w it, or name another --mpsd-socket"
            )
        make_way(self._path)

    def _serve(self, undo: ExitStack) -> ServedSocket:
        bound = bound_path(self._path)
        pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="mpsd")
        undo.callback(lambda: pool.shutdown(wait=self._drained))
        server = grpc.server(pool, options=_OPTIONS)
        undo.callback(lambda: server.stop(_STOP_S if self._drained else 0.0).wait())
        mpsd_grpc.add_MpsdServicer_to_server(self._service, server)
        with private_folder(bound.parent):
            bind_server(server.add_insecure_port, self._path, bound=bound)
            server.start()
            return publish(self._path, bound=bound)
