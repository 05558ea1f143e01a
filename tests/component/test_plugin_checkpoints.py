"""The plugin as a process, called by the program that it installs, and by controllers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest

from dra_driver.adapters.checkpoint_client import HookRefused
from dra_driver.adapters.operation_store import OperationFiles
from dra_driver.model.checkpoint import OperationState, Target
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.model.health import HealthStatus
from dra_driver.plan.claim_marks import MARKER_PATH
from dra_driver.sim.kubelet_values import KubeletError
from tests import builders
from tests.component.hooked_node import CONTAINER, INIT, PROGRAM, HookedNode, hooked_node
from tests.unit.operating import operation
from tests.waiting import eventually


@pytest.fixture
def node(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HookedNode]:
    monkeypatch.setenv("PATH", str(root / "image"), prepend=":")
    with hooked_node(root) as made:
        yield made


def test_dump_goes_by_and_its_operation_is_kept_when_the_plugin_is_killed(
    node: HookedNode,
) -> None:
    with node.plugin() as first:
        node.wait_served()
        assert node.checkpointable() == {True}
        claim = node.claim(1, checkpoint="Required")
        node.rig.kubelet.prepare("pod", [claim])
        edits = node.spec(claim)
        assert MARKER_PATH in [mount["containerPath"] for mount in edits["mounts"]]
        assert [(hook["hookName"], hook["path"]) for hook in edits["hooks"]] == [
            ("createRuntime", PROGRAM),
            ("poststop", PROGRAM),
        ]
        node.start_container(claim)
        assert node.script("pre-dump") == (0, "")
        (begun,) = node.operations()
        assert begun["state"] == "STATE_DELEGATED"
        assert [each["uid"] for each in begun["claims"]] == [claim.ref.uid]
        first.kill()

    status, said = node.script("pre-dump")
    assert (status, "the driver" in said) == (1, True)
    assert node.script("post-dump")[0] == 0

    with node.plugin():
        node.wait_served()
        assert node.states() == ["STATE_DELEGATED"]
        assert node.script("post-dump") == (0, "")
        node.end_criu()
        node.wait_state("STATE_DONE")


def test_claim_is_refused_when_the_checkpoint_that_it_names_does_not_fit(
    node: HookedNode,
) -> None:
    with node.plugin():
        node.wait_served()
        claim = node.claim(1, checkpoint="BestEffort")
        node.rig.kubelet.prepare("pod", [claim])
        node.start_container(claim)
        node.call("PreCheckpoint", operationId="op-1", target={"containerId": CONTAINER})
        node.call("PostCheckpoint", operationId="op-1", outcome="OUTCOME_SUCCEEDED")
        node.wait_state("STATE_DONE")

        node.rig.kubelet.unprepare("pod")
        same = node.claim(2, restoreFrom="op-1")
        node.rig.kubelet.prepare("same", [same])
        other = node.claim(3, on=1, restoreFrom="op-1")
        with pytest.raises(KubeletError, match=f"{builders.uuid(0)}.*{builders.uuid(1)}"):
            node.rig.kubelet.prepare("other", [other])
        unknown = node.claim(4, on=1, restoreFrom="op-2")
        with pytest.raises(KubeletError, match="op-2 is not known on this node"):
            node.rig.kubelet.prepare("unknown", [unknown])


def test_dump_of_a_share_is_refused_and_told_when_the_program_asks(node: HookedNode) -> None:
    with node.plugin(publish_mode="auto"):
        node.wait_served()
        claim = node.rig.allocate(1, [builders.share_result(node.rig.gpus()[0])])
        node.rig.kubelet.prepare("pod", [claim])
        node.start_container(claim)
        status, said = node.script("pre-dump")
        assert status == 1
        assert "allows no checkpoints" in said
        assert node.operations() == []
        eventually(lambda: node.events("CheckpointRefused"), 30, "an Event tells")


def test_controller_is_answered_by_the_next_plugin_when_the_first_one_ends(
    node: HookedNode,
) -> None:
    with node.plugin("first", pod_uid="1") as first:
        node.wait_served()
        claim = node.claim(1, checkpoint="BestEffort")
        node.rig.kubelet.prepare("pod", [claim])
        node.start_container(claim)
        target = {"containerId": CONTAINER}
        begun = node.call("PreCheckpoint", operationId="op-1", target=target)
        assert begun["state"] == "STATE_DELEGATED"
        with node.plugin("second", pod_uid="2") as second:
            eventually(lambda: "Waiting for another" in second.log, 30, "the second one waits")
            assert node.call("GetOperation", operationId="op-1")["state"] == "STATE_DELEGATED"
            first.send(signal.SIGTERM)
            assert first.wait() == 0
            node.wait_served()
            node.call("PostCheckpoint", operationId="op-1", outcome="OUTCOME_SUCCEEDED")
            node.wait_state("STATE_DONE")
            with pytest.raises(HookRefused, match="NOT_FOUND"):
                node.call("GetOperation", operationId="op-2")


def test_hook_is_taken_out_and_new_claims_are_without_it_when_it_is_switched_off(
    node: HookedNode,
) -> None:
    with node.plugin() as first:
        node.wait_served()
        assert (node.configured, node.installed) == (True, True)
        held = node.claim(1)
        node.rig.kubelet.prepare("held", [held])
        assert first.stop() == 0

    with node.plugin(checkpoint_hook="false") as second:
        node.wait_served()
        eventually(lambda: not node.configured, 30, "CRIU is not told of it any more")
        eventually(lambda: node.checkpointable() == {False}, 30, "the devices say so")
        assert node.installed
        new = node.claim(2, on=1)
        node.rig.kubelet.prepare("new", [new])
        assert "hooks" not in node.spec(new)
        node.rig.kubelet.unprepare("new")
        required = node.claim(3, on=1, checkpoint="Required")
        with pytest.raises(KubeletError, match="takes no checkpoints"):
            node.rig.kubelet.prepare("required", [required])
        node.rig.kubelet.unprepare("held")
        assert second.stop() == 0

    with node.plugin(checkpoint_hook="false"):
        node.wait_served()
        eventually(lambda: not node.installed, 30, "the program is gone")


def test_plugin_prepares_claims_when_the_hook_cannot_be_installed(node: HookedNode) -> None:
    node.image.joinpath("gpuslice-hook").write_text("#!/bin/sh\nexit 3\n")
    with node.plugin() as plugin:
        node.wait_served()
        assert "The checkpoint hook is not installed" in plugin.log
        claim = node.claim(1)
        node.rig.kubelet.prepare("pod", [claim])
        assert "hooks" not in node.spec(claim)
        assert node.checkpointable() == {False}
        assert not node.configured


def test_gpu_is_unhealthy_while_a_checkpoint_has_left_a_container_broken(node: HookedNode) -> None:
    claim = node.claim(1, checkpoint="BestEffort")
    left = operation(
        CudaState.LOCKED,
        claims=(claim.ref,),
        changed_wall_s=time(),
        state=OperationState.FAILED_UNHEALTHY,
        target=Target(container_id=CONTAINER, init=ProcessRef(pid=INIT, started=500)),
        text="it cannot be unlocked",
    )
    OperationFiles(node.rig.state, node.rig.root / "run").save(left)
    with node.plugin():
        node.wait_served()
        assert unhealthy(node) == {}
        node.rig.kubelet.prepare("pod", [claim])
        node.start_container(claim)
        sick, well = node.rig.gpus()
        eventually(lambda: sick in unhealthy(node), 30, "the kubelet hears")
        assert "it cannot be unlocked; delete its pod" in unhealthy(node)[sick]
        eventually(lambda: sick in tainted(node), 30, "the scheduler hears")
        assert well not in (*unhealthy(node), *tainted(node))
        node.rig.kubelet.unprepare("pod")
        eventually(lambda: (unhealthy(node), tainted(node)) == ({}, []), 30, "it is over")


def unhealthy(node: HookedNode) -> dict[str, str]:
    """What the kubelet is told of sick devices."""
    return {
        each.row.device: each.row.message
        for each in node.rig.kubelet.health(builders.DRIVER)
        if each.row.status is HealthStatus.UNHEALTHY
    }


def tainted(node: HookedNode) -> list[str]:
    return [each["name"] for each in node.rig.devices() if each.get("taints")]
