"""Calls to a checkpoint service over its socket, in JSON."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_api.checkpoint import checkpoint_v1alpha1_pb2 as checkpoint
from dra_api.checkpoint import checkpoint_v1alpha1_pb2_grpc as checkpoint_grpc
from dra_driver.adapters.checkpoint_client import METHODS, HookRefused, call_hook
from dra_driver.errors import AdapterError

_LARGE = 5 << 20
"""More than gRPC takes unless told so; a node with many GPUs keeps a thousand operations."""


class Service(checkpoint_grpc.CheckpointHookServicer):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def PreCheckpoint(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's
        self.seen.append(request)
        if request.operation_id == "bad":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "shares under MPS: refused")
        if request.operation_id == "later":
            context.abort(grpc.StatusCode.UNAVAILABLE, "the driver reloads")
        return checkpoint.HookResponse(
            operation_id=request.operation_id, state=checkpoint.STATE_DELEGATED
        )

    def GetOperation(self, request: Any, context: Any) -> Any:  # noqa: N802
        return checkpoint.Operation(operation_id=request.operation_id, message="x" * _LARGE)


@pytest.fixture
def service() -> Service:
    return Service()  # type: ignore[abstract]


@pytest.fixture
def socket(service: Service, tmp_path: Path) -> Iterator[Path]:
    server = grpc.server(ThreadPoolExecutor(2))
    checkpoint_grpc.add_CheckpointHookServicer_to_server(service, server)
    path = tmp_path / "c.sock"
    server.add_insecure_port(f"unix:{path}")
    server.start()
    yield path
    server.stop(None).wait()


def pre(socket: Path, **request: Any) -> dict[str, Any]:
    return call_hook(socket, "PreCheckpoint", request, timeout_s=10.0)


def test_request_and_answer_are_the_protocol_in_json(service: Service, socket: Path) -> None:
    answer = pre(
        socket,
        operationId="a",
        gpuOwner="GPU_OWNER_DRIVER",
        leaseSeconds=7,
        target={"podNamespace": "team", "pod_name": "trainer"},
    )
    (seen,) = service.seen
    assert (seen.operation_id, seen.lease_seconds) == ("a", 7)
    assert seen.gpu_owner == checkpoint.GPU_OWNER_DRIVER
    assert (seen.target.pod_namespace, seen.target.pod_name) == ("team", "trainer")
    assert answer["operationId"] == "a"
    assert answer["state"] == "STATE_DELEGATED"
    # What is at its default is there, too.
    assert answer["replayed"] is False
    assert answer["warnings"] == []


@pytest.mark.parametrize(
    ("name", "code", "reason"),
    [
        ("bad", "FAILED_PRECONDITION", "shares under MPS: refused"),
        ("later", "UNAVAILABLE", "the driver reloads"),
    ],
)
def test_refusal_is_passed_on(socket: Path, name: str, code: str, reason: str) -> None:
    with pytest.raises(HookRefused) as caught:
        pre(socket, operationId=name)
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert str(caught.value) == f"PreCheckpoint was refused: {code}: {reason}"


def test_large_answer_is_read(socket: Path) -> None:
    answer = call_hook(socket, "GetOperation", {"operationId": "a"}, timeout_s=10.0)
    assert len(answer["message"]) == _LARGE


def test_method_of_a_newer_service_is_refused(socket: Path) -> None:
    with pytest.raises(HookRefused, match="UNIMPLEMENTED"):
        call_hook(socket, "ListOperations", {}, timeout_s=10.0)


@pytest.mark.parametrize(
    ("method", "request_", "text"),
    [
        ("Freeze", {}, "no method 'Freeze': name one of PreCheckpoint"),
        ("PreCheckpoint", {"operation": 1}, "does not fit PreCheckpoint"),
        ("PreCheckpoint", {"leaseSeconds": "x"}, "does not fit PreCheckpoint"),
        ("PreCheckpoint", {"gpuOwner": "NOBODY"}, "does not fit PreCheckpoint"),
    ],
)
def test_request_that_does_not_fit_is_not_sent(
    service: Service, socket: Path, method: str, request_: dict[str, Any], text: str
) -> None:
    with pytest.raises(AdapterError, match=text):
        call_hook(socket, method, request_, timeout_s=10.0)
    assert service.seen == []


def test_service_that_is_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"no checkpoint service answers on .*none\.sock"):
        call_hook(tmp_path / "none.sock", "ListOperations", {}, timeout_s=5.0)


def test_methods_are_those_of_the_protocol() -> None:
    assert METHODS[0] == "PreCheckpoint"
    assert set(METHODS) >= {"PostRestore", "GetOperation", "ListOperations", "Abort"}
