"""What the hook does before and after a dump."""

from __future__ import annotations

import pytest

from dra_driver.errors import AdapterError, CudaFailed, OutOfTime
from dra_driver.model.checkpoint import (
    AfterCheckpoint,
    Code,
    GpuOwner,
    OperationState,
    Outcome,
)
from dra_driver.model.cuda import CudaState
from tests.unit.hooking import CRIU, Rig, by_criu, container, post, pre

S = OperationState
RUNNING, LOCKED, CHECKPOINTED = CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED


def test_pre_checkpoint_takes_all_processes_off_when_the_driver_owns_them() -> None:
    rig = Rig(container(RUNNING, RUNNING))

    answer = rig.call(pre(owner=GpuOwner.DRIVER))

    assert answer.code is Code.OK
    assert rig.operation().state is S.GPU_CHECKPOINTED
    assert rig.node.states("c1") == [CHECKPOINTED, CHECKPOINTED]
    assert rig.node.moves() == [
        ("lock", 101),
        ("lock", 102),
        ("checkpoint", 101),
        ("checkpoint", 102),
    ]


def test_post_checkpoint_brings_processes_back_when_the_container_runs_on() -> None:
    rig = Rig(container(RUNNING, LOCKED))
    rig.call(pre(owner=GpuOwner.DRIVER))

    answer = rig.call(post())
    assert answer.operation is not None
    assert answer.operation.state is S.CAPTURED
    rig.keep()

    assert rig.operation().state is S.DONE
    # Its user had locked the second one before.
    assert rig.node.states("c1") == [RUNNING, LOCKED]


@pytest.mark.parametrize("move", ["lock", "checkpoint"])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CudaFailed("CUDA_ERROR_NOT_SUPPORTED"), Code.FAILED_PRECONDITION),
        (OutOfTime("helper killed after 3 s"), Code.DEADLINE_EXCEEDED),
        (AdapterError("the driver is being reloaded"), Code.UNAVAILABLE),
    ],
)
def test_pre_checkpoint_leaves_no_lock_when_a_move_fails(
    move: str, error: AdapterError, code: Code
) -> None:
    rig = Rig(container(RUNNING, RUNNING))
    rig.node.broken[move] = error

    answer = rig.call(pre(owner=GpuOwner.DRIVER))

    assert (answer.code, answer.text) == (code, str(error))
    assert rig.operation().state is S.FAILED_CLEAN
    assert rig.node.states("c1") == [RUNNING, RUNNING]


def test_lease_ends_by_itself_when_nobody_tells_what_came_of_it() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER, lease_s=60.0))

    rig.keep(wait_s=59.0)
    assert rig.operation().state is S.GPU_CHECKPOINTED
    rig.keep(wait_s=1.0)

    assert rig.operation().state is S.EXPIRED
    assert rig.node.states("c1") == [RUNNING]
    assert rig.fakes.recorder.counted("hook_leases_expired_total") == 1
    late = rig.call(post())
    assert late.operation is not None
    assert late.operation.state is S.EXPIRED


def test_call_is_answered_again_when_it_is_repeated() -> None:
    rig = Rig(container(RUNNING))
    first = rig.call(pre(owner=GpuOwner.DRIVER))
    moves = rig.node.moves()

    again = rig.call(pre(owner=GpuOwner.DRIVER))

    assert not first.replayed
    assert again.replayed
    assert again.code is Code.OK
    assert rig.node.moves() == moves
    other = rig.call(pre(owner=GpuOwner.CRIU_PLUGIN))
    assert other.code is Code.INVALID_ARGUMENT


def test_refusal_is_answered_again_when_a_failed_call_is_repeated() -> None:
    rig = Rig(container(RUNNING))
    rig.node.broken["lock"] = CudaFailed("CUDA_ERROR_UNKNOWN")
    rig.call(pre(owner=GpuOwner.DRIVER))
    del rig.node.broken["lock"]

    again = rig.call(pre(owner=GpuOwner.DRIVER))

    assert again.replayed
    assert again.code is Code.FAILED_PRECONDITION


def test_second_operation_is_aborted_when_one_is_under_way_on_the_container() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre("op-1", owner=GpuOwner.DRIVER))

    answer = rig.call(pre("op-2", owner=GpuOwner.DRIVER))

    assert answer.code is Code.ABORTED
    assert "operation op-1 (checkpoint, GpuCheckpointed) is under way" in answer.text
    assert rig.engine.table.get("op-2") is None


def test_dump_joins_when_a_controller_prepared_it() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre("op-1", owner=GpuOwner.DRIVER))
    rig.node.containers["c1"].frozen = True

    answer = rig.call(by_criu())
    done = rig.call(by_criu(phase=post().phase, outcome=Outcome.SUCCEEDED))
    rig.node.containers["c1"].frozen = False
    rig.node.runtimes.clear()
    rig.keep()

    assert answer.code is Code.OK
    assert done.operation is not None
    assert done.operation.id == "op-1"
    assert rig.operation("op-1").state is S.DONE
    assert rig.node.states("c1") == [RUNNING]


def test_dump_by_criu_is_only_watched_when_its_plugin_moves_the_processes() -> None:
    rig = Rig(container(RUNNING))
    rig.node.containers["c1"].frozen = True

    answer = rig.call(by_criu())
    assert answer.code is Code.OK
    operation = rig.operation("criu-1")
    assert (operation.state, operation.owner) == (S.DELEGATED, GpuOwner.CRIU_PLUGIN)
    rig.node.containers["c1"].cuda[101] = CHECKPOINTED
    rig.call(by_criu(phase=post().phase, outcome=Outcome.SUCCEEDED))
    rig.keep(wait_s=1.0)
    assert rig.operation("criu-1").state is S.VERIFYING
    rig.node.containers["c1"].cuda[101] = RUNNING
    rig.node.containers["c1"].frozen = False
    rig.node.runtimes.clear()
    rig.keep(wait_s=1.0)

    assert rig.operation("criu-1").state is S.DONE
    assert rig.node.moves() == []


def test_dump_is_done_only_when_criu_has_ended() -> None:
    rig = Rig(container())
    rig.call(by_criu())
    rig.call(by_criu(phase=post().phase, outcome=Outcome.SUCCEEDED))

    rig.keep(wait_s=1.0)
    assert rig.operation("criu-1").state is S.VERIFYING
    rig.node.runtimes = {CRIU + 1}
    # The next dump need not wait for the keeper to see it.
    answer = rig.call(by_criu("criu-2", runner=CRIU + 1))

    assert answer.code is Code.OK
    assert rig.operation("criu-1").state is S.DONE


@pytest.mark.parametrize("gone", [True, False])
def test_operation_is_undone_when_its_claim_is_unprepared(*, gone: bool) -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER))
    if gone:
        rig.fakes.records = ()

    rig.keep(wait_s=1.0)

    operation = rig.operation()
    assert operation.state is (S.FAILED_CLEAN if gone else S.GPU_CHECKPOINTED)
    assert ("was unprepared" in operation.text) is gone
    assert rig.node.states("c1") == [RUNNING if gone else CHECKPOINTED]


def test_source_is_brought_back_when_criu_ended_and_left_a_lock() -> None:
    rig = Rig(container(RUNNING))
    rig.call(by_criu())
    rig.node.containers["c1"].cuda[101] = CHECKPOINTED
    rig.node.runtimes.clear()

    rig.keep()

    # The dump failed after pre-dump: CRIU calls nobody then.
    assert rig.operation("criu-1").state is S.FAILED_CLEAN
    assert rig.node.states("c1") == [RUNNING]


def test_retried_dump_is_admitted_when_the_one_before_died() -> None:
    rig = Rig(container(RUNNING))
    rig.call(by_criu("criu-1"))
    rig.node.runtimes = {CRIU + 1}

    answer = rig.call(by_criu("criu-2", runner=CRIU + 1))

    assert answer.code is Code.OK
    assert rig.operation("criu-1").state is S.FAILED_CLEAN
    assert rig.operation("criu-2").state is S.DELEGATED


def test_source_is_reported_when_it_cannot_be_brought_back() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER))
    rig.node.broken["restore"] = CudaFailed("CUDA_ERROR_OUT_OF_MEMORY")

    rig.call(post(outcome=Outcome.FAILED, outcome_text="no room"))
    rig.keep()
    assert rig.operation().state is S.ROLLING_BACK
    # Time that passed while nobody kept it ends nothing; what fails again after that does.
    rig.keep(wait_s=300.0)
    assert rig.operation().state is S.ROLLING_BACK
    rig.keep(wait_s=16.0)

    assert rig.operation().state is S.FAILED_UNHEALTHY
    assert rig.operation().text == "no room"
    [(about, reason, text)] = rig.node.events
    assert about == "team-a/claim-1"
    assert reason == "GPUCheckpointFailed"
    assert "process 101 cannot be brought back to the GPU (no room)" in text


def test_container_that_stops_is_done_when_its_processes_have_ended() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER, after=AfterCheckpoint.STOP))
    rig.call(post())
    rig.keep()
    assert rig.operation().state is S.VERIFYING

    rig.node.containers["c1"].pids.clear()
    rig.keep()

    assert rig.operation().state is S.DONE
    assert ("restore", 101) not in rig.node.moves()


@pytest.mark.parametrize("crash", ["lock", "checkpoint"])
def test_operation_goes_on_when_the_driver_was_killed_in_the_middle(crash: str) -> None:
    rig = Rig(container(RUNNING, RUNNING))

    class KilledError(BaseException):
        pass

    rig.node.broken[crash] = KilledError()  # type: ignore[assignment]
    with pytest.raises(KilledError):
        rig.call(pre(owner=GpuOwner.DRIVER))
    del rig.node.broken[crash]
    # One move was done, and nobody has heard of it.
    rig.node.containers["c1"].cuda[101] = LOCKED if crash == "lock" else CHECKPOINTED
    rig.start()
    answer = rig.call(pre(owner=GpuOwner.DRIVER))

    assert answer.code is Code.OK
    assert not answer.replayed
    assert rig.node.states("c1") == [CHECKPOINTED, CHECKPOINTED]
    rig.keep(wait_s=300.0)
    assert rig.node.states("c1") == [RUNNING, RUNNING]


def test_abort_undoes_what_was_prepared() -> None:
    rig = Rig(container(RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER))

    answer = rig.abort("op-1")
    rig.keep()

    assert answer.code is Code.OK
    assert rig.operation().state is S.FAILED_CLEAN
    assert rig.node.states("c1") == [RUNNING]
    assert rig.abort("op-9").code is Code.NOT_FOUND
