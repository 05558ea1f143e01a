"""What the hook does before and after a restore."""

from __future__ import annotations

from dra_driver.errors import CudaFailed
from dra_driver.model.checkpoint import (
    Code,
    GpuOwner,
    OperationState,
    Outcome,
    Target,
    Trigger,
)
from dra_driver.model.cuda import CudaState, DeviceMapping
from dra_driver.model.manifest import Field
from tests.builders import gpu, inventory, ref, uuid
from tests.unit.hooking import (
    CRIU,
    Rig,
    by_criu,
    container,
    new_container,
    post,
    pre,
    restore,
    restored,
    taken,
    whole,
)

S = OperationState
RUNNING, LOCKED, CHECKPOINTED = CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED


def test_restore_is_verified_when_criu_brings_the_processes_back() -> None:
    rig = Rig(container(RUNNING))
    taken(rig)
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)

    answer = rig.call(restore())
    runner = by_criu().runner
    told = rig.call(restored(runner=runner))
    assert (answer.code, told.code) == (Code.OK, Code.OK)
    assert rig.operation("op-2").checkpoint_id == "op-1"
    rig.keep(wait_s=1.0)
    assert rig.operation("op-2").state is S.VERIFYING, "CRIU is still at work"
    rig.node.containers["c2"].cuda[201] = RUNNING
    rig.node.runtimes.clear()
    rig.keep(wait_s=1.0)

    assert rig.operation("op-2").state is S.DONE
    assert rig.node.killed == []


def test_container_is_killed_when_criu_swallowed_a_failed_gpu_restore() -> None:
    rig = Rig(container(RUNNING))
    taken(rig)
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)
    rig.call(restore(target=Target(container_id="c2", pod_namespace="team-a", pod_name="web")))

    rig.call(restored(runner=by_criu().runner))
    rig.node.runtimes.clear()
    rig.keep()

    assert rig.operation("op-2").state is S.FAILED_KILLED
    assert rig.node.killed == [200, 201]
    [(about, reason, text)] = rig.node.events
    assert (about, reason) == ("team-a/web", "GPURestoreFailed")
    assert "process 201 did not come back to the GPU" in text
    assert rig.fakes.recorder.counted("hook_verify_failures_total") == 1


def test_kill_is_repeated_until_nothing_is_left() -> None:
    rig = Rig(container(RUNNING))
    taken(rig)
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)
    rig.call(restore())
    rig.call(restored(runner=by_criu().runner))
    rig.node.runtimes.clear()
    rig.node.unkillable = True

    rig.keep()
    assert rig.operation("op-2").state is S.KILLING
    rig.start()
    rig.node.unkillable = False
    rig.keep(wait_s=1.0)

    assert rig.operation("op-2").state is S.FAILED_KILLED


def test_restore_by_the_driver_goes_to_another_gpu_by_a_whole_map() -> None:
    rig = Rig(container(RUNNING), inventory=inventory(gpu(0), gpu(1), driver_version="580.65.06"))
    taken(rig, owner=GpuOwner.DRIVER)
    rig.fakes.records = (whole(2, on=1, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)

    rig.call(restore(runner=by_criu().runner))
    rig.call(restored(runner=by_criu().runner))
    rig.node.runtimes.clear()
    rig.keep()

    assert rig.operation("op-2").state is S.DONE
    assert rig.node.states("c2") == [RUNNING]
    assert rig.node.mappings == [(DeviceMapping(old=uuid(0), new=uuid(1)),)]


def test_container_is_killed_when_the_driver_cannot_restore() -> None:
    rig = Rig(container(RUNNING))
    taken(rig, owner=GpuOwner.DRIVER)
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)
    rig.node.broken["restore"] = CudaFailed("CUDA_ERROR_OUT_OF_MEMORY")

    rig.call(restore())
    rig.call(restored())
    rig.keep()

    # The first cause is kept, and nothing is tried again.
    assert rig.operation("op-2").text == "CUDA_ERROR_OUT_OF_MEMORY"
    assert rig.node.moves().count(("restore", 201)) == 1
    assert rig.node.killed == [200, 201]


def test_restore_is_refused_when_criu_would_need_another_gpu() -> None:
    rig = Rig(container(RUNNING))
    taken(rig)
    rig.fakes.records = (whole(2, on=1, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)

    answer = rig.call(restore())

    assert answer.code is Code.FAILED_PRECONDITION
    assert [each.field for each in answer.mismatches] == [Field.GPU]
    assert f"gpu was {uuid(0)}, here it is {uuid(1)}" in answer.text
    assert rig.engine.table.get("op-2") is None


def test_restore_is_refused_when_the_checkpoint_is_unknown_or_was_not_taken() -> None:
    rig = Rig(container(RUNNING))
    rig.fakes.records = (whole(), whole(2, restore_from="op-9"))
    new_container(rig, CHECKPOINTED)
    assert "operation op-9 is not known on this node" in rig.call(restore()).text

    rig.call(pre(owner=GpuOwner.DRIVER))
    rig.call(post(outcome=Outcome.FAILED))
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    answer = rig.call(restore())
    assert answer.code is Code.FAILED_PRECONDITION
    assert "operation op-1 is not known to have taken a checkpoint" in answer.text


def test_restore_is_refused_when_the_named_claim_is_not_prepared() -> None:
    rig = Rig(records=())
    new_container(rig)

    answer = rig.call(restore())

    assert answer.code is Code.FAILED_PRECONDITION
    assert f"claim {ref(2).uid} is not prepared on this node" in answer.text


def test_restore_is_verified_alone_when_no_checkpoint_is_named() -> None:
    rig = Rig(records=(whole(2),))
    new_container(rig, CHECKPOINTED)

    answer = rig.call(restore())
    assert answer.code is Code.OK
    assert "no checkpoint operation is named" in answer.warnings[0]
    rig.call(restored(runner=by_criu().runner))
    rig.node.runtimes.clear()
    rig.keep()

    assert rig.operation("op-2").state is S.FAILED_KILLED


def test_restore_is_verified_when_the_driver_was_away_before_it() -> None:
    rig = Rig(records=(whole(2),))
    new_container(rig, LOCKED)
    rig.node.runtimes.clear()

    rig.call(restored(runner=by_criu(runner=CRIU).runner))
    rig.keep()

    assert rig.operation("op-2").state is S.FAILED_KILLED


def test_container_is_verified_when_its_restore_expired_before_it_was_told() -> None:
    rig = Rig(records=(whole(2),))
    rig.call(restore())
    rig.keep(wait_s=301.0)
    rig.keep()
    assert rig.operation("op-2").state is S.EXPIRED
    new_container(rig, CHECKPOINTED)
    rig.node.runtimes.clear()

    answer = rig.call(restored(runner=by_criu().runner))
    rig.keep()

    assert answer.operation is not None
    assert answer.operation.state is S.EXPIRED
    assert rig.operation("op-2.late").state is S.FAILED_KILLED


def test_restore_has_failed_when_the_runtime_says_so() -> None:
    rig = Rig(records=(whole(2),))
    new_container(rig)
    rig.call(restore())

    rig.node.containers.clear()
    rig.call(
        restored("oci-9", trigger=Trigger.OCI_HOOK, outcome=Outcome.FAILED, outcome_text="stopped")
    )
    rig.keep()

    assert rig.operation("op-2").state is S.FAILED_CLEAN
    assert rig.operation("op-2").text == "stopped"


def test_restore_joins_what_a_controller_announced_for_its_claim() -> None:
    rig = Rig(records=(whole(2),))
    rig.call(restore("op-2", trigger=Trigger.CONTROLLER, target=Target()))
    new_container(rig, RUNNING)

    rig.call(restore("oci-1"))
    rig.node.runtimes.clear()
    rig.call(restored("criu-1", runner=by_criu().runner))
    rig.keep()

    assert rig.operation("op-2").state is S.DONE
    assert rig.operation("op-2").target.container_id == "c2"
    assert rig.engine.table.get("oci-1") is None


def test_ordinary_container_is_left_alone_when_it_is_restored() -> None:
    rig = Rig(records=(whole(1),))
    rig.node.containers["c2"] = container(name="c2", claim=None, first_pid=200)

    assert rig.call(restore(claims=())).operation is None
    assert rig.call(restored()).operation is None
    assert rig.fakes.store.files == {}
