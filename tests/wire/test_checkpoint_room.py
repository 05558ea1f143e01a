"""The checkpoint service while many calls hang."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import NoReturn, cast

import grpc
import pytest

from dra_api.checkpoint import checkpoint_v1alpha1_pb2 as api
from dra_driver.checkpoint.grpc_service import BEFORE_MAX, WORKERS
from dra_driver.model.cuda import CudaState
from tests.fakes.checkpoint import FakeHook, FakeNode
from tests.unit.hooking import container, whole
from tests.waiting import eventually
from tests.wire.hook import PATIENCE_S, hosted, stub


def test_operations_are_looked_at_and_aborted_when_calls_before_dumps_hang(root: Path) -> None:
    hook = FakeHook(FakeNode(container(CudaState.RUNNING)), records=(whole(),))
    gate = Event()
    hook.node.held["state"] = gate
    with hosted(hook, root) as served, stub(served.paths.grpc) as calls:
        hanging = [
            calls.PreCheckpoint.future(
                api.PreCheckpointRequest(
                    operation_id=f"op-{number}", target=api.Target(container_id="c1")
                ),
                timeout=PATIENCE_S,
            )
            for number in range(2 * WORKERS)
        ]
        try:
            eventually(
                lambda: sum(each.done() for each in hanging) == 2 * WORKERS - BEFORE_MAX,
                PATIENCE_S,
                "those that find no room are turned away",
            )
            refused = {each.code() for each in hanging if each.done()}
            assert refused == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            assert not calls.ListOperations(
                api.ListOperationsRequest(), timeout=PATIENCE_S
            ).operations
            with pytest.raises(grpc.RpcError) as caught:
                calls.Abort(api.AbortRequest(operation_id="op-99"), timeout=PATIENCE_S)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            told = api.PostCheckpointRequest(operation_id="op-99")
            assert calls.PostCheckpoint(told, timeout=PATIENCE_S).state == api.STATE_NOOP
        finally:
            gate.set()
            codes = {each.code() for each in hanging}
        assert grpc.StatusCode.OK in codes


def test_nothing_begins_when_a_caller_has_left_before_its_turn(root: Path) -> None:
    hook = FakeHook(FakeNode(container()), records=(whole(),))
    with hosted(hook, root) as served, pytest.raises(Aborted, match="nobody waits"):
        served.host._grpc._service.PreCheckpoint(
            api.PreCheckpointRequest(operation_id="op-1", target=api.Target(container_id="c1")),
            cast("grpc.ServicerContext", Left()),
        )
    assert served.host.handler.operations() == ()


class Aborted(Exception):  # noqa: N818 - as gRPC has it
    pass


class Left:
    """A call whose caller is gone."""

    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> float:
        return 0.0

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise Aborted(f"{code}: {details}")
