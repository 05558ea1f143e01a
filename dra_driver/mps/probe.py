"""Liveness as the plugin would see it: through the real socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_api.mpsd import mpsd_v1alpha1_pb2_grpc as mpsd_grpc

_OPTIONS = (
    # A new connection each time: a pooled one outlives the socket's file.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


def probe_socket(path: Path, *, timeout_s: float) -> str:
    """Call Get; why that failed, or ""."""
    try:
        with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
            mpsd_grpc.MpsdStub(channel).Get(mpsd.GetRequest(), timeout=timeout_s)
    except grpc.RpcError as error:
        # What a stub raises is a Call too; the types of grpcio cannot say so.
        failed: Any = error
        return f"{path} does not answer: {failed.details() or failed.code().name}"
    return ""
