"""What of an operation is stored when, and what a plugin or a node that ended finds of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from dra_driver.model.checkpoint import (
    Code,
    GpuOwner,
    HookPhase,
    HookRequest,
    Kind,
    OperationState,
    Outcome,
    Trigger,
)
from dra_driver.model.cuda import CudaState
from dra_driver.plan.operation_lasting import lasts, lasts_at_once
from tests.builders import ref
from tests.fakes.operation_store import KilledError
from tests.unit.hooking import (
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
from tests.unit.operating import operation

S = OperationState
RUNNING, CHECKPOINTED = CudaState.RUNNING, CudaState.CHECKPOINTED


def criu_done() -> HookRequest:
    return by_criu(phase=HookPhase.POST_CHECKPOINT, outcome=Outcome.SUCCEEDED)


def test_dump_by_criu_is_stored_once_a_call_and_lasts_when_no_call_waits() -> None:
    rig = Rig(container(RUNNING))

    rig.call(by_criu())
    assert rig.fakes.store.saves == [(S.DELEGATED, False)]
    assert [each.phase for each in rig.operation("criu-1").answers] == [HookPhase.PRE_CHECKPOINT]
    rig.call(criu_done())
    assert rig.fakes.store.saves[1:] == [(S.VERIFYING, False)]
    assert len(rig.operation("criu-1").answers) == 2
    rig.keep()
    assert rig.fakes.store.saves[2:] == []
    rig.node.runtimes.clear()
    rig.keep()

    assert rig.fakes.store.saves[2:] == [(S.VERIFYING, True), (S.DONE, True)]


def test_refused_dump_that_nobody_began_is_not_stored() -> None:
    rig = Rig(container(RUNNING), records=(whole(), whole(2)), plugin=False)

    assert rig.call(by_criu()).code is Code.FAILED_PRECONDITION

    assert rig.fakes.store.saves == []


def test_operation_is_stored_before_a_process_is_moved() -> None:
    rig = Rig(container(RUNNING))
    rig.node.broken["lock"] = KilledError()  # type: ignore[assignment]

    with pytest.raises(KilledError):
        rig.call(pre(owner=GpuOwner.DRIVER))

    assert rig.fakes.store.saves == [(S.PREPARING, True)]


def test_restore_is_stored_once_a_call() -> None:
    rig = Rig(container(), records=(whole(), whole(2, restore_from="op-1")))
    taken(rig)
    new_container(rig)
    before = len(rig.fakes.store.saves)

    assert rig.call(restore()).code is Code.OK
    rig.call(restored())

    assert rig.fakes.store.saves[before:] == [(S.DELEGATED, False), (S.VERIFYING, False)]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(9))
@pytest.mark.parametrize("by", ["criu", "driver"])
def test_no_lock_and_no_lease_is_left_when_the_plugin_is_killed_at_a_save(
    by: str, number: int, *, late: bool
) -> None:
    rig = Rig(container(RUNNING, RUNNING))
    first, last = by_criu(), criu_done()
    if by == "driver":
        first, last = pre(owner=GpuOwner.DRIVER), post()
    rig.fakes.store.kills = {number: late}

    answers: list[Code] = []
    for request in (first, last):
        with suppress(KilledError):
            answers.append(rig.call(request).code)
            rig.keep()
            continue
        rig.start()
    rig.fakes.store.kills = {}
    rig.start()
    rig.node.runtimes.clear()
    for _ in range(4):
        rig.keep(wait_s=200.0)

    assert all(each.state.final for each in rig.engine.table.all())
    assert rig.node.states("c1") == [RUNNING, RUNNING]
    assert not rig.node.killed


def test_manifest_outlives_a_power_cut_when_the_dump_was_written() -> None:
    rig = Rig(container(RUNNING), records=(whole(), whole(2, restore_from="criu-1")))
    rig.call(by_criu())
    rig.call(criu_done())
    # CRIU has ended, and the plugin is killed while it brings back what CRIU has left.
    rig.node.containers["c1"].cuda[101] = CHECKPOINTED
    rig.node.runtimes.clear()
    rig.fakes.store.kills = {3: False}
    with suppress(KilledError):
        rig.keep()
    rig.fakes.store.kills = {}
    assert rig.fakes.store.saves[2:] == [(S.VERIFYING, True)]

    rig.fakes.store.power_cut()
    rig.fakes = replace(rig.fakes, boot_id="another")
    rig.node.containers.clear()
    rig.start()
    rig.keep()

    assert rig.operation("criu-1").state is S.DONE
    new_container(rig)
    asked = rig.call(restore())
    assert asked.code is Code.OK
    assert asked.operation is not None
    assert asked.operation.manifest == rig.operation("criu-1").manifest is not None


def test_power_cut_takes_what_the_runtime_had_under_way_and_nothing_of_a_controller() -> None:
    rig = Rig(container(RUNNING), container(RUNNING, name="c2", claim=2, first_pid=200))
    rig.fakes.records = (whole(), whole(2))
    rig.call(by_criu())
    rig.call(pre(owner=GpuOwner.DRIVER, target=replace(pre().target, container_id="c2")))

    rig.fakes.store.power_cut()
    rig.fakes = replace(rig.fakes, boot_id="another")
    rig.start()
    rig.keep()

    assert [(each.id, each.state) for each in rig.engine.table.all()] == [("op-1", S.FAILED_CLEAN)]


@pytest.mark.parametrize("trigger", Trigger)
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("outcome", Outcome)
@pytest.mark.parametrize("state", OperationState)
def test_what_lasts_at_once_lasts_and_the_rest_is_without_an_image(
    *, trigger: Trigger, kind: Kind, outcome: Outcome, state: OperationState
) -> None:
    found = operation(kind=kind, trigger=trigger, outcome=outcome, state=state, claims=(ref(1),))
    if lasts_at_once(found):
        assert lasts(found)
    if kind is Kind.CHECKPOINT and outcome is Outcome.SUCCEEDED:
        assert lasts(found)
    elif trigger is not Trigger.CONTROLLER and not state.final:
        assert not lasts(found)
