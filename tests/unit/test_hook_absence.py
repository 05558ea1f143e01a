"""What the hook does of which the time passed while the plugin was away."""

from __future__ import annotations

import pytest

from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import GpuOwner, OperationState, Outcome
from dra_driver.model.cuda import CudaState
from tests.unit.hooking import (
    Rig,
    by_criu,
    container,
    new_container,
    restore,
    restored,
    taken,
    whole,
)

S = OperationState
RUNNING, CHECKPOINTED = CudaState.RUNNING, CudaState.CHECKPOINTED


def test_restored_container_is_not_judged_by_time_that_passed_without_the_driver() -> None:
    rig = Rig(container(RUNNING))
    taken(rig, owner=GpuOwner.DRIVER)
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)
    rig.call(restore())
    rig.call(restored())

    rig.start()
    rig.node.broken["state"] = AdapterError("the driver is just being loaded")
    rig.keep(wait_s=400.0)
    assert rig.operation("op-2").state is S.GPU_RESTORING
    rig.node.broken.clear()
    rig.keep(wait_s=1.0)

    assert rig.operation("op-2").state is S.DONE
    assert rig.node.states("c2") == [RUNNING]
    assert rig.node.killed == []


def test_kill_is_tried_once_more_when_its_time_passed_without_the_driver() -> None:
    rig = Rig(container(RUNNING))
    taken(rig)
    rig.fakes.records = (whole(2, restore_from="op-1"),)
    new_container(rig, CHECKPOINTED)
    rig.call(restore())
    rig.call(restored(runner=by_criu().runner))
    rig.node.runtimes.clear()
    rig.node.unkillable = True
    rig.keep()

    rig.start()
    rig.keep(wait_s=400.0)
    assert rig.operation("op-2").state is S.KILLING
    rig.keep(wait_s=16.0)

    assert rig.operation("op-2").state is S.FAILED_UNHEALTHY
    assert "could not be killed in time" in rig.node.events[-1][2]


def test_dump_is_not_called_failed_when_its_end_was_told_to_nobody() -> None:
    rig = Rig(container(RUNNING))
    rig.call(by_criu())

    rig.start()
    rig.node.runtimes.clear()
    rig.keep()
    rig.keep(wait_s=1.0)

    ended = rig.operation("criu-1")
    assert (ended.state, ended.outcome) == (S.FAILED_CLEAN, Outcome.UNKNOWN)
    assert ended.text == (
        "the runtime ended without telling what came of the dump: it is there where the kubelet"
        " says so"
    )
    assert rig.node.states("c1") == [RUNNING]


@pytest.mark.parametrize(
    ("cuda", "state"),
    [((RUNNING,), S.DONE), ((), S.FAILED_CLEAN), ((CHECKPOINTED,), S.FAILED_KILLED)],
)
def test_restore_is_judged_by_its_processes_when_its_end_was_told_to_nobody(
    cuda: tuple[CudaState, ...], state: OperationState
) -> None:
    rig = Rig(records=(whole(2),))
    rig.call(restore(runner=by_criu().runner))

    new_container(rig, *cuda)
    rig.start()
    rig.node.runtimes.clear()
    rig.keep()
    rig.keep(wait_s=301.0)

    ended = rig.operation("op-2")
    assert ended.state is state
    assert (ended.text == "") == (state is S.DONE)


def test_restore_that_was_aborted_stays_so_when_its_processes_run() -> None:
    rig = Rig(records=(whole(2),))
    rig.call(restore(runner=by_criu().runner))
    new_container(rig, RUNNING)
    rig.node.runtimes.clear()
    rig.abort("op-2")
    rig.keep()

    assert rig.operation("op-2").state is S.FAILED_CLEAN
