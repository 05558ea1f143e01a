"""What is kept of operations that left containers with broken GPU state, and who lifts that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.checkpoint.table import KEPT, KEPT_S
from dra_driver.model.checkpoint import Code, GpuOwner, OperationState
from dra_driver.model.cuda import CudaState
from dra_driver.model.deadline import Deadline
from dra_driver.plan.operation_values import Aborted
from dra_driver.plan.operations import step
from tests.unit.hooking import Rig, container, pre
from tests.unit.operating import operation, process

S = OperationState
BROKEN = operation(CudaState.LOCKED, state=S.FAILED_UNHEALTHY, text="it does not come back")


def broken(*, alive: bool = True) -> Rig:
    """A node with one broken container whose first process still runs, or does not."""
    rig = Rig()
    saved = BROKEN
    if alive:
        rig.node.containers["c1"] = container(CudaState.LOCKED)
        target = replace(BROKEN.target, init=rig.node.containers["c1"].init)
        saved = replace(BROKEN, target=target)
    rig.engine.table.save(saved)
    return rig


def test_broken_operation_is_kept_when_its_container_still_runs() -> None:
    rig = broken()
    rig.engine.table.save(replace(BROKEN, id="op-done", state=S.DONE))
    rig.keeper.prune()
    assert [each.id for each in rig.engine.table.all()] == ["op-1"]
    rig.start()
    assert [each.id for each in rig.engine.table.all()] == ["op-1"]


def test_broken_operation_is_kept_when_more_than_enough_came_after_it() -> None:
    rig = broken()
    now_s = rig.fakes.clock.wall_s()
    for number in range(KEPT + 1):
        done = replace(BROKEN, id=f"done-{number}", state=S.DONE, changed_wall_s=now_s)
        rig.engine.table.save(replace(done, started_wall_s=now_s + number))
    rig.keeper.prune()
    kept = [each.id for each in rig.engine.table.all()]
    assert kept[:2] == ["op-1", "done-1"]


def test_broken_operation_is_forgotten_when_its_claim_is_unprepared() -> None:
    rig = broken()
    rig.fakes.records = ()
    rig.keeper.prune()
    assert rig.engine.table.all() == ()


def test_broken_operation_is_forgotten_when_its_container_has_ended() -> None:
    rig = broken(alive=False)
    assert not rig.engine.world.alive(process(0))
    assert rig.fakes.clock.wall_s() > KEPT_S
    rig.keeper.prune()
    assert rig.engine.table.all() == ()


def test_abort_acknowledges_broken_state_once_and_for_good() -> None:
    rig = broken()
    rig.fakes.store.saves.clear()
    for _ in range(2):
        answer = rig.acknowledge("op-1")
        assert answer.code is Code.OK
        assert answer.operation is not None
        assert answer.operation.acknowledged
    assert rig.fakes.store.saves == [(S.FAILED_UNHEALTHY, True)]
    rig.start()
    assert rig.operation().acknowledged
    rig.keeper.prune()
    assert rig.engine.table.all() == ()


def test_abort_acknowledges_nothing_when_it_is_not_asked_to() -> None:
    # A command that gives up aborts what it began, whatever became of it.
    rig = broken()
    assert rig.abort("op-1").code is Code.OK
    assert not rig.operation().acknowledged
    assert step(BROKEN, Aborted(text="given up"), 0.0) == (BROKEN, ())


@pytest.mark.parametrize("state", [each for each in S if each.final])
def test_only_broken_state_is_acknowledged(state: OperationState) -> None:
    rig = broken()
    rig.engine.table.save(replace(BROKEN, state=state))
    rig.acknowledge("op-1")
    assert rig.operation().acknowledged == (state is S.FAILED_UNHEALTHY)


def test_abort_answers_for_no_end_that_is_yet_to_come() -> None:
    rig = Rig(container(CudaState.RUNNING))
    rig.call(pre(owner=GpuOwner.DRIVER))
    rig.acknowledge("op-1")
    assert rig.operation().state is S.ROLLING_BACK
    assert not rig.operation().acknowledged


def test_call_begins_nothing_when_its_time_went_by_before_it_was_admitted() -> None:
    rig = Rig(container(CudaState.RUNNING))
    answer = rig.handler.call(pre(), Deadline(rig.fakes.clock.monotonic_s()))
    assert answer.code is Code.UNAVAILABLE
    assert rig.engine.table.all() == ()
    assert rig.node.moves() == []


def test_late_call_passes_when_its_container_has_no_claim() -> None:
    rig = Rig(container(CudaState.RUNNING, claim=None), records=())
    answer = rig.handler.call(pre(), Deadline(rig.fakes.clock.monotonic_s()))
    assert answer.code is Code.OK
