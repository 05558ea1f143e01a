"""Liveness as the kubelet would see it: through the real sockets, touching no lock and no state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from dra_api.kubelet import dra_v1_pb2 as dra
from dra_api.kubelet import dra_v1_pb2_grpc as dra_grpc
from dra_api.kubelet import pluginregistration_v1_pb2 as registration
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as registration_grpc
from dra_driver.kubelet.paths import SocketPaths

_OPTIONS = (
    # A new connection each time: a pooled one outlives the socket's file.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
)


def probe_sockets(paths: SocketPaths, *, timeout_s: float) -> str:
    """Call GetInfo and an empty NodePrepareResources; the reason of the first failure, or "".

    `timeout_s` is for each of the two.
    """
    try:
        with _channel(paths.registration) as channel:
            registration_grpc.RegistrationStub(channel).GetInfo(
                registration.InfoRequest(), timeout=timeout_s
            )
    except grpc.RpcError as error:
        return f"{paths.registration} does not answer: {_reason(error)}"
    try:
        with _channel(paths.dra) as channel:
            dra_grpc.DRAPluginStub(channel).NodePrepareResources(
                dra.NodePrepareResourcesRequest(), timeout=timeout_s
            )
    except grpc.RpcError as error:
        return f"{paths.dra} does not answer: {_reason(error)}"
    return ""


def _channel(path: Path) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{path}", options=_OPTIONS)


def _reason(error: Any) -> str:
    # What a stub raises is a Call too; the types of grpcio cannot say so.
    return str(error.details() or error.code().name)
