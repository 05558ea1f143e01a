"""`gpuslice mpsd`'s edge on a real socket, with a fake supervisor behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import grpc

from dra_api.mpsd import mpsd_v1alpha1_pb2_grpc as mpsd_grpc
from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.mpsd_client import MpsdClient
from dra_driver.model.deadline import Deadline
from dra_driver.model.share import Expose, GpuShare, Sharing
from dra_driver.mps.server import MpsdServer
from dra_driver.mps.service import MpsdService
from tests.builders import uuid
from tests.fakes.sharing import FakeSharing


@contextmanager
def serving(path: Path, sharing: FakeSharing) -> Iterator[MpsdServer]:
    server = MpsdServer(path, MpsdService(sharing, clock=SystemClock()))
    server.start()
    try:
        yield server
    finally:
        server.stop(grace_s=5.0)


@contextmanager
def stub(path: Path) -> Iterator[mpsd_grpc.MpsdStub]:
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
        yield mpsd_grpc.MpsdStub(channel)


@contextmanager
def client(path: Path, **options: Any) -> Iterator[MpsdClient]:
    found = MpsdClient(path, clock=SystemClock(), burst_allowed=True, **options)
    try:
        yield found
    finally:
        found.close()


def soon(seconds: float = 30.0) -> Deadline:
    return Deadline(monotonic() + seconds)


def share(name: str = "share-1", **changes: Any) -> GpuShare:
    fields: dict[str, Any] = {
        "id": name,
        "gpu": uuid(0),
        "sharing": Sharing.MPS,
        "compute_percent": 25,
        "memory_mib": 6144,
        "expose": Expose.CONTROL,
    }
    return GpuShare(**(fields | changes))
