"""The checkpoint hook on real sockets, over a node of fakes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import grpc

from dra_api.checkpoint import checkpoint_v1alpha1_pb2_grpc as api_grpc
from dra_driver.checkpoint.host import HookHost, HookPaths
from dra_driver.checkpoint.raw_line import Marker, Phase, RawHead, RawRequest, encode
from tests.fakes.checkpoint import FakeHook
from tests.waiting import eventually

PATIENCE_S = 60.0


def paths(root: Path) -> HookPaths:
    return HookPaths(grpc=root / "checkpoint.sock", raw=root / "hook.sock", lock=root / "hook.lock")


class Hosted:
    """A hook that runs on a thread, like a plugin's."""

    def __init__(self, fakes: FakeHook, root: Path, *, uid: int | None = None) -> None:
        self.paths = paths(root)
        own = os.getuid() if uid is None else uid
        self.host = HookHost(fakes.world(), self.paths, uid=own)
        self._stop = Event()
        self._thread = Thread(target=self.host.run, args=(self._stop,), name="hook")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@contextmanager
def hosted(fakes: FakeHook, root: Path, *, uid: int | None = None) -> Iterator[Hosted]:
    running = Hosted(fakes, root, uid=uid)
    running.start()
    try:
        eventually(running.paths.raw.exists, PATIENCE_S, "the hook is served")
        yield running
    finally:
        running.stop()


@contextmanager
def stub(path: Path) -> Iterator[api_grpc.CheckpointHookStub]:
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
        yield api_grpc.CheckpointHookStub(channel)


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(str(path))
    return connection


def said(path: Path, data: bytes) -> bytes:
    """Send bytes to the raw socket; what comes back."""
    with connected(path) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return received(connection)


def received(connection: socket.socket) -> bytes:
    answer = b""
    while more := connection.recv(4096):
        answer += more
    return answer


def line(
    phase: Phase,
    *,
    pid: int | None = 100,
    criu: int | None = 900,
    body: bytes = b"",
    marker: Marker | None = None,
    **head: str,
) -> bytes:
    """What gpuslice-hook sends; processes of the fakes start at ten times their pid."""
    return encode(
        RawRequest(
            head=RawHead(
                phase=phase,
                pid=pid,
                started=pid * 10 if pid else None,
                criu=criu,
                criu_started=criu * 10 if criu else None,
                length=len(body),
                claim=head.get("claim"),
                marker=marker,
            ),
            body=body,
        )
    )
