"""The gRPC service of controllers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_api.checkpoint import checkpoint_v1alpha1_pb2 as api
from dra_driver.checkpoint.grpc_messages import (
    _STATES,
    MESSAGE_MAX,
    InvalidMessage,
    post_checkpoint,
    post_restore,
    pre_checkpoint,
    pre_restore,
)
from dra_driver.model.checkpoint import OperationState
from dra_driver.model.cuda import CudaState
from tests.builders import ref
from tests.fakes.checkpoint import FakeHook, FakeNode
from tests.unit.hooking import container, share, whole
from tests.unit.operating import operation
from tests.waiting import eventually
from tests.wire.hook import PATIENCE_S, hosted, stub

RUNNING = CudaState.RUNNING
TARGET = api.Target(container_id="c1")


def fakes(*cuda: CudaState) -> FakeHook:
    return FakeHook(FakeNode(container(*cuda)), records=(whole(),))


def pre(operation_id: str = "op-1", **fields: Any) -> api.PreCheckpointRequest:
    given: dict[str, Any] = {"gpu_owner": api.GPU_OWNER_DRIVER, "target": TARGET} | fields
    return api.PreCheckpointRequest(operation_id=operation_id, **given)


def test_controller_takes_a_checkpoint(root: Path) -> None:
    hook = fakes(RUNNING)
    with hosted(hook, root) as served, stub(served.paths.grpc) as calls:
        begun = calls.PreCheckpoint(pre(), timeout=PATIENCE_S)
        assert begun.state == api.STATE_GPU_CHECKPOINTED
        assert begun.operation.claims[0].uid == ref(1).uid
        assert [each.state for each in begun.operation.processes] == ["Checkpointed"]
        assert '"driverOwned":true' in begun.operation.manifest_json
        assert 0 < begun.operation.remaining_seconds <= 300
        assert calls.PreCheckpoint(pre(), timeout=PATIENCE_S).replayed

        told = api.PostCheckpointRequest(operation_id="op-1", outcome=api.OUTCOME_SUCCEEDED)
        calls.PostCheckpoint(told, timeout=PATIENCE_S)
        named = api.OperationRef(operation_id="op-1")
        eventually(
            lambda: calls.GetOperation(named, timeout=PATIENCE_S).state == api.STATE_DONE,
            PATIENCE_S,
            "the source is verified",
        )
        everything = api.ListOperationsRequest()
        assert len(calls.ListOperations(everything, timeout=PATIENCE_S).operations) == 1
        unfinished = api.ListOperationsRequest(unfinished_or_failed=True)
        assert len(calls.ListOperations(unfinished, timeout=PATIENCE_S).operations) == 0
    assert hook.node.states("c1") == [RUNNING]


def test_controller_restores(root: Path) -> None:
    hook = fakes()
    with hosted(hook, root) as served, stub(served.paths.grpc) as calls:
        calls.PreCheckpoint(pre(), timeout=PATIENCE_S)
        told = api.PostCheckpointRequest(operation_id="op-1", outcome=api.OUTCOME_SUCCEEDED)
        calls.PostCheckpoint(told, timeout=PATIENCE_S)
        asked = api.PreRestoreRequest(
            operation_id="op-2", checkpoint_id="op-1", claim_uids=[ref(1).uid]
        )
        checked = calls.PreRestore(asked, timeout=PATIENCE_S)
        assert checked.state == api.STATE_DELEGATED
        assert [(m.old_uuid, m.new_uuid) for m in checked.operation.device_map] == [
            (hook.records[0].gpus[0],) * 2
        ]
        done = api.PostRestoreRequest(
            operation_id="op-2", outcome=api.OUTCOME_SUCCEEDED, target=TARGET
        )
        calls.PostRestore(done, timeout=PATIENCE_S)
        named = api.OperationRef(operation_id="op-2")
        eventually(
            lambda: calls.GetOperation(named, timeout=PATIENCE_S).state == api.STATE_DONE,
            PATIENCE_S,
            "the container is verified",
        )


def test_abort_undoes_and_unknown_operations_are_not_found(root: Path) -> None:
    hook = fakes(RUNNING)
    with hosted(hook, root) as served, stub(served.paths.grpc) as calls:
        calls.PreCheckpoint(pre(), timeout=PATIENCE_S)
        calls.Abort(api.AbortRequest(operation_id="op-1"), timeout=PATIENCE_S)
        eventually(lambda: hook.node.states("c1") == [RUNNING], PATIENCE_S, "all is undone")
        with pytest.raises(grpc.RpcError) as caught:
            calls.Abort(api.AbortRequest(operation_id="op-9"), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as caught:
            calls.GetOperation(api.OperationRef(operation_id="op-9"), timeout=PATIENCE_S)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_abort_acknowledges_broken_state_when_it_is_asked_to(root: Path) -> None:
    hook = fakes(RUNNING)
    broken = operation(RUNNING, state=OperationState.FAILED_UNHEALTHY)
    hook.store.save(replace(broken, changed_wall_s=hook.clock.wall_s()))
    with hosted(hook, root) as served, stub(served.paths.grpc) as calls:
        for asked in (False, True, True):
            request = api.AbortRequest(operation_id="op-1", acknowledge=asked)
            answer = calls.Abort(request, timeout=PATIENCE_S)
            assert (answer.state, answer.acknowledged) == (api.STATE_FAILED_UNHEALTHY, asked)


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (pre("no/id"), grpc.StatusCode.INVALID_ARGUMENT, "operation_id: 'no/id' is no id"),
        (pre(target=api.Target()), grpc.StatusCode.INVALID_ARGUMENT, "target: give container_id"),
        (
            pre(target=api.Target(container_id="../x")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "'../x' is no container id",
        ),
        (
            pre(gpu_owner=api.GPU_OWNER_NONE),
            grpc.StatusCode.INVALID_ARGUMENT,
            "gpu_owner: give AUTO, DRIVER or CRIU_PLUGIN",
        ),
        (pre(), grpc.StatusCode.FAILED_PRECONDITION, "under MPS"),
    ],
)
def test_refusal_says_code_and_reason(
    root: Path, request_: api.PreCheckpointRequest, code: grpc.StatusCode, text: str
) -> None:
    hook = fakes(RUNNING)
    hook.records = (share(),)
    failing = pytest.raises(grpc.RpcError)
    with hosted(hook, root) as served, stub(served.paths.grpc) as calls, failing as caught:
        calls.PreCheckpoint(request_, timeout=PATIENCE_S)

    assert caught.value.code() is code
    assert text in (caught.value.details() or "")


def test_every_state_has_a_name_on_the_wire() -> None:
    assert set(_STATES) == set(OperationState)
    assert set(_STATES.values()) | {api.STATE_NOOP} == set(api.State.values())


def test_restore_needs_to_say_of_what() -> None:
    with pytest.raises(InvalidMessage, match="checkpoint_id"):
        pre_restore(api.PreRestoreRequest(operation_id="op-2", target=TARGET))
    with pytest.raises(InvalidMessage, match="claim_uids: '/' is no UID"):
        pre_restore(
            api.PreRestoreRequest(operation_id="op-2", checkpoint_id="op-1", claim_uids=["/"])
        )


@pytest.mark.parametrize("field", ["pod_uid", "pod_namespace", "pod_name", "container_name"])
def test_target_is_refused_when_a_name_is_longer_than_any(field: str) -> None:
    target = api.Target(container_id="c1")
    setattr(target, field, "x" * 253)
    assert getattr(pre_checkpoint(pre(target=target)).target, field) == "x" * 253
    setattr(target, field, "x" * 254)
    with pytest.raises(InvalidMessage, match=f"target.{field}: it has 254 .*; give at most 253"):
        pre_checkpoint(pre(target=target))


def test_outcome_is_refused_when_its_message_is_too_long() -> None:
    longest, longer = ("x" * length for length in (MESSAGE_MAX, MESSAGE_MAX + 1))
    told = api.PostCheckpointRequest(operation_id="op-1", message=longest)
    assert post_checkpoint(told).outcome_text == longest
    too_long = "^message: it has 1025 characters; give at most 1024$"
    with pytest.raises(InvalidMessage, match=too_long):
        post_checkpoint(api.PostCheckpointRequest(operation_id="op-1", message=longer))
    with pytest.raises(InvalidMessage, match=too_long):
        post_restore(api.PostRestoreRequest(operation_id="op-1", message=longer))


def test_refusal_of_an_id_does_not_repeat_all_of_a_long_one() -> None:
    for request_ in (pre("x" * 5000), pre(target=api.Target(container_id="x" * 5000))):
        with pytest.raises(InvalidMessage, match="is no ") as caught:
            pre_checkpoint(request_)
        assert len(str(caught.value)) < 500
