"""Which checkpoints the hook refuses, and in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.model.checkpoint import (
    Code,
    ContainerMemory,
    GpuOwner,
    OperationState,
    Target,
    Trigger,
)
from dra_driver.model.cuda import CudaState
from dra_driver.model.share import CheckpointPolicy
from tests.builders import gpu, inventory
from tests.unit.hooking import Rig, by_criu, container, post, pre, share, whole

S = OperationState
RUNNING, LOCKED, CHECKPOINTED = CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED


def test_container_without_a_claim_is_none_of_ours() -> None:
    rig = Rig(container(RUNNING, claim=None))

    answer = rig.call(by_criu())

    assert answer.code is Code.OK
    assert answer.operation is None
    assert rig.call(post("op-9")).operation is None
    assert rig.node.moves() == []


def test_checkpoint_is_refused_when_the_share_is_under_mps() -> None:
    rig = Rig(container(RUNNING), records=(share(),))

    answer = rig.call(by_criu())

    assert answer.code is Code.FAILED_PRECONDITION
    assert "has a share of GPU" in answer.text
    assert "under MPS" in answer.text
    assert rig.node.moves() == []
    assert [reason for _, reason, _ in rig.node.events] == ["CheckpointRefused"]
    accepted = rig.call(by_criu(trigger=Trigger.CONTROLLER, accept_host_only=True))
    assert accepted.code is Code.OK
    assert accepted.warnings == ("the checkpoint has no GPU state",)


@pytest.mark.parametrize("owner", [GpuOwner.AUTO, GpuOwner.DRIVER])
def test_dry_run_leaves_nothing(owner: GpuOwner) -> None:
    rig = Rig(container(RUNNING))

    answer = rig.call(pre(owner=owner, dry_run=True))

    assert answer.code is Code.OK
    assert rig.fakes.store.files == {}
    assert rig.node.moves() == []


def test_checkpoint_is_refused_when_its_claim_does_not_allow_it() -> None:
    rig = Rig(container(RUNNING), records=(whole(checkpoint=CheckpointPolicy.NONE),))
    assert "allows no checkpoints" in rig.call(pre()).text

    rig.fakes.records = (whole(checkpoint=CheckpointPolicy.REQUIRED),)
    answer = rig.call(pre(accept_host_only=True))
    assert answer.code is Code.FAILED_PRECONDITION
    assert "wants its GPU state in every checkpoint" in answer.text


def test_checkpoint_is_refused_when_the_driver_is_too_old() -> None:
    rig = Rig(container(RUNNING), inventory=inventory(gpu(0), driver_version="565.57.01"))

    answer = rig.call(pre())

    assert answer.code is Code.UNIMPLEMENTED
    assert "GPU driver 565.57.01" in answer.text


def test_container_without_cuda_processes_needs_no_plugin_and_no_driver() -> None:
    rig = Rig(container(), plugin=False, inventory=inventory(gpu(0), driver_version=None))

    answer = rig.call(by_criu())

    assert answer.code is Code.OK
    assert rig.operation("criu-1").owner is GpuOwner.NONE


def test_dump_is_refused_when_processes_use_cuda_and_criu_has_no_plugin() -> None:
    rig = Rig(container(RUNNING), plugin=False)

    answer = rig.call(by_criu())

    assert answer.code is Code.FAILED_PRECONDITION
    assert "process 101 uses CUDA and CRIU has no CUDA plugin" in answer.text
    assert rig.call(pre()).operation is not None, "a controller lets the driver do it"
    assert rig.operation().owner is GpuOwner.DRIVER


def test_driver_refuses_to_move_processes_when_the_container_is_frozen() -> None:
    rig = Rig(container(RUNNING))
    rig.node.containers["c1"].frozen = True

    answer = rig.call(pre(owner=GpuOwner.DRIVER))

    assert answer.code is Code.FAILED_PRECONDITION
    assert "is frozen" in answer.text


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (ContainerMemory(available_bytes=1 << 30), "the host, which has 768 MiB left"),
        (ContainerMemory(available_bytes=64 << 30, left_bytes=1 << 29), "leaves 512 MiB"),
    ],
)
def test_checkpoint_is_refused_when_host_memory_is_short(left: ContainerMemory, text: str) -> None:
    rig = Rig(container(RUNNING))
    rig.node.left = left

    answer = rig.call(pre())

    assert answer.code is Code.RESOURCE_EXHAUSTED
    assert text in answer.text


def test_nothing_is_done_when_it_cannot_be_stored() -> None:
    rig = Rig(container(RUNNING))
    rig.fakes.store.broken = True

    answer = rig.call(pre(owner=GpuOwner.DRIVER))

    assert answer.code is Code.UNAVAILABLE
    assert rig.node.moves() == []


def test_operation_ends_when_the_node_was_restarted() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER))
    rig.fakes = replace(rig.fakes, boot_id="another")
    rig.start()

    rig.keep()

    assert rig.operation().state is S.FAILED_CLEAN
    assert rig.operation().text == "the node was restarted"


def test_container_is_found_by_its_pod() -> None:
    rig = Rig(container())
    rig.node.pods_by_name["team-a", "web"] = {
        "metadata": {"uid": "u1"},
        "status": {"containerStatuses": [{"name": "main", "containerID": "containerd://c1"}]},
    }
    target = Target(pod_namespace="team-a", pod_name="web")

    answer = rig.call(pre(target=target))

    assert answer.operation is not None
    assert answer.operation.target.container_id == "c1"
    assert answer.operation.target.container_name == "main"
    gone = rig.call(pre("op-2", target=replace(target, pod_name="other")))
    assert gone.code is Code.NOT_FOUND
