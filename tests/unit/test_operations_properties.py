"""Whatever happens to an operation of the hook: no lock is left, and it ends."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.model.checkpoint import AfterCheckpoint, GpuOwner, Kind, OperationState, Outcome
from dra_driver.model.cuda import CudaState
from dra_driver.plan.operation_values import (
    Aborted,
    CheckpointProcesses,
    Finished,
    KillContainer,
    LockProcesses,
    Look,
    RestoreProcesses,
    RunnerEnded,
    Tick,
    UnlockProcesses,
)
from dra_driver.plan.operations import step
from tests.unit.operating import NOW_S, World, operation, process

S = OperationState
FOUND = st.sampled_from((CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED))
EVENTS = st.sampled_from(
    (
        Tick(),
        Finished(outcome=Outcome.SUCCEEDED),
        Finished(outcome=Outcome.FAILED, text="no room"),
        Finished(outcome=Outcome.UNKNOWN),
        RunnerEnded(),
        Aborted(text="by hand"),
    )
)
KINDS = st.sampled_from(
    (
        LockProcesses,
        CheckpointProcesses,
        RestoreProcesses,
        UnlockProcesses,
        Look,
        KillContainer,
    )
)
HAPPENINGS = st.lists(
    st.fixed_dictionaries(
        {
            "event": EVENTS,
            "wait_s": st.sampled_from((0.0, 1.0, 100.0, 400.0)),
            "broken": st.sets(KINDS, max_size=2),
            "busy": st.booleans(),
            # How many effects are carried out before the process is killed; none of them is told.
            "crash_after": st.one_of(st.none(), st.integers(min_value=0, max_value=3)),
            "ends": st.one_of(st.none(), st.integers(min_value=0, max_value=2)),
        }
    ),
    max_size=6,
)


class Life:
    """An operation as it is stored, in a world that fails."""

    def __init__(self, **changes: Any) -> None:
        found = changes.pop("found")
        self.operation = operation(*found, **changes)
        self.world = World(found)
        self.now_s = NOW_S
        self.ended_at: OperationState | None = None

    def happens(self, event: Any, *, crash_after: int | None = None) -> None:
        pending, done = [event], 0
        while pending:
            after, effects = step(self.operation, pending.pop(0), self.now_s)
            assert not self.operation.state.final or after == self.operation
            self.operation = after
            for effect in effects:
                if crash_after is not None and done >= crash_after:
                    # Half of what was begun may be done, and nobody hears of it.
                    self.world.carry_out(effect)
                    return
                done += 1
                answer = self.world.carry_out(effect)
                if answer is not None:
                    pending.append(answer)
            assert done < 50, "it goes round in circles"

    def goes_on(self, happenings: list[dict[str, Any]]) -> None:
        for each in happenings:
            self.now_s += each["wait_s"]
            self.world.broken, self.world.busy = set(each["broken"]), each["busy"]
            number = each["ends"]
            if number is not None and process(number) in self.world.states:
                self.world.states[process(number)] = None
            self.happens(each["event"], crash_after=each["crash_after"])

    def ends(self) -> None:
        """The driver ticks on, in a world without faults."""
        self.world.broken, self.world.busy = set(), False
        for _ in range(2000):
            if self.operation.state.final:
                return
            self.now_s += 1.0
            self.happens(Tick())
        raise AssertionError(f"it is {self.operation.state} for ever")


@settings(max_examples=120, deadline=None)
@given(
    found=st.lists(FOUND, max_size=3),
    after=st.sampled_from(AfterCheckpoint),
    happenings=HAPPENINGS,
)
def test_checkpoint_by_the_driver_leaves_no_lock_whatever_happens(
    found: list[CudaState], after: AfterCheckpoint, happenings: list[dict[str, Any]]
) -> None:
    life = Life(found=found, after=after)

    life.goes_on(happenings)
    life.ends()

    assert life.operation.state in (S.DONE, S.EXPIRED, S.FAILED_CLEAN, S.FAILED_UNHEALTHY)
    back = [
        state in (None, CudaState.RUNNING, was)
        for state, was in zip(life.world.states.values(), found, strict=True)
    ]
    if life.operation.state is S.FAILED_UNHEALTHY:
        assert life.world.told, "nobody is told that it is not as it was"
    else:
        assert all(back), f"{life.world.states} of {found} in {life.operation.state}"


@settings(max_examples=80, deadline=None)
@given(found=st.lists(FOUND, max_size=3), happenings=HAPPENINGS)
def test_found_state_is_returned_to_whatever_happens(
    found: list[CudaState], happenings: list[dict[str, Any]]
) -> None:
    life = Life(found=found)

    life.goes_on([each | {"ends": None} for each in happenings])
    life.ends()

    if life.operation.state is not S.FAILED_UNHEALTHY:
        assert list(life.world.states.values()) == found


@settings(max_examples=120, deadline=None)
@given(
    states=st.lists(st.sampled_from(CudaState), max_size=3),
    owner=st.sampled_from((GpuOwner.DRIVER, GpuOwner.CRIU_PLUGIN, GpuOwner.NONE)),
    runner=st.booleans(),
    happenings=HAPPENINGS,
)
def test_restored_container_runs_on_only_with_a_good_state_whatever_happens(
    *, states: list[CudaState], owner: GpuOwner, runner: bool, happenings: list[dict[str, Any]]
) -> None:
    life = Life(
        found=states,
        kind=Kind.RESTORE,
        state=S.CHECKED,
        owner=owner,
        processes=(),
        runner=process(9) if runner else None,
    )

    life.goes_on(happenings)
    life.ends()

    running = all(state in (None, CudaState.RUNNING) for state in life.world.states.values())
    match life.operation.state:
        case S.FAILED_UNHEALTHY:
            assert life.world.told
        case S.FAILED_KILLED:
            assert life.world.killed
            assert life.world.told
        case _:
            assert running


@settings(max_examples=80, deadline=None)
@given(
    kind=st.sampled_from(Kind),
    owner=st.sampled_from((GpuOwner.DRIVER, GpuOwner.CRIU_PLUGIN, GpuOwner.NONE)),
    broken=st.sets(KINDS),
    busy=st.booleans(),
    states=st.lists(FOUND, max_size=2),
)
def test_operation_ends_in_bounded_time_when_nothing_works(
    *, kind: Kind, owner: GpuOwner, broken: set[Any], busy: bool, states: list[CudaState]
) -> None:
    first = S.PREPARING if kind is Kind.CHECKPOINT else S.CHECKED
    life = Life(found=states, kind=kind, owner=owner, state=first)
    life.world.broken, life.world.busy = broken, busy

    for _ in range(1000):
        life.now_s += 1.0
        life.happens(Tick())

    assert life.operation.state.final


@settings(max_examples=80, deadline=None)
@given(found=st.lists(FOUND, max_size=3), happenings=HAPPENINGS)
def test_nothing_is_unhealthy_when_all_moves_work(
    found: list[CudaState], happenings: list[dict[str, Any]]
) -> None:
    life = Life(found=found)

    life.goes_on([each | {"ends": None, "broken": (), "busy": False} for each in happenings])
    life.ends()

    assert life.operation.state is not S.FAILED_UNHEALTHY
    assert list(life.world.states.values()) == found


@settings(max_examples=80, deadline=None)
@given(
    left=st.lists(FOUND, min_size=1, max_size=3),
    runner=st.booleans(),
    happenings=HAPPENINGS,
)
def test_checkpoint_by_criu_is_brought_back_when_criu_leaves_a_lock(
    *, left: list[CudaState], runner: bool, happenings: list[dict[str, Any]]
) -> None:
    found = [CudaState.RUNNING] * len(left)
    life = Life(found=found, owner=GpuOwner.CRIU_PLUGIN, runner=process(9) if runner else None)
    life.world.states = {process(number): state for number, state in enumerate(left)}

    life.goes_on([each | {"broken": ()} for each in happenings])
    life.ends()

    assert all(state in (None, CudaState.RUNNING) for state in life.world.states.values()) or (
        life.operation.state is S.FAILED_UNHEALTHY and life.world.told
    )
