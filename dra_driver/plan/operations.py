"""The life of a checkpoint or a restore: the state machine of the hook.

    checkpoint  PREPARING ─▶ LOCKED ─▶ GPU_CHECKPOINTED ─▶ CAPTURED ─▶ VERIFYING ─▶ DONE
                    └────────▶ DELEGATED ─────────────────────▲
                any failure, abort, end of the lease ─▶ ROLLING_BACK ─▶ FAILED_CLEAN, EXPIRED
                                                              └───────▶ FAILED_UNHEALTHY
    restore     CHECKED ─▶ GPU_RESTORING ─▶ VERIFYING ─▶ DONE
                   └─────▶ DELEGATED ───────────▲  └───▶ KILLING ─▶ FAILED_KILLED

An operation is stored before the effects of a step are carried out, and `Tick` gives the pending
ones again: that is all there is to recovery. Each state but the final ones has a time by which it
ends, so nothing lasts for ever. What is brought back goes to the state that it was found in: what
its user had locked before stays locked.

While the runtime is at work on a container, its processes are its own: they are looked at alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from dra_driver.model.checkpoint import (
    AfterCheckpoint,
    Code,
    GpuOwner,
    Kind,
    Operation,
    OperationState,
    Outcome,
)
from dra_driver.model.cuda import CudaState
from dra_driver.plan.operation_ends import (
    LEASED,
    UNHEARD,
    Stepped,
    ended,
    give_up,
    is_unheard,
    kill,
    killed,
    loss,
    rebooted,
    roll_back,
    unhealthy,
    with_cause,
)
from dra_driver.plan.operation_moves import (
    bring_back,
    is_back,
    is_running,
    refs,
    take_off,
    updated,
)
from dra_driver.plan.operation_times import after_absence, rollback_s, verify_s
from dra_driver.plan.operation_values import (
    Aborted,
    Event,
    Finished,
    KillContainer,
    Killed,
    Look,
    Moved,
    Problem,
    Rebooted,
    RunnerEnded,
    Seen,
    Tick,
)

S = OperationState


def step(operation: Operation, event: Event, now_s: float) -> Stepped:
    """Give the operation after an event, and what is to be done next.

    Args:
        operation: as stored; one in a final state stays as it is, but for being acknowledged.
        event: what happened.
        now_s: on the monotonic clock of the operation's boot.
    """
    stepped: Stepped = (operation, ())
    if operation.state.final:
        return ended(operation, event), ()
    match event:
        case Tick():
            stepped = _tick(operation, now_s)
        case Seen():
            stepped = _seen(updated(operation, event.states), event, now_s)
        case Moved():
            stepped = _moved(operation, event, now_s)
        case Finished(outcome=outcome, text=text):
            stepped = _finished(operation, outcome, text, now_s)
        case RunnerEnded():
            # What came of it stays unknown: its last word may have met no driver.
            problem = Problem(code=Code.OK, text=UNHEARD[operation.kind])
            stepped = give_up(operation, S.FAILED_CLEAN, problem, now_s)
        case Aborted(text=text):
            problem = Problem(code=Code.ABORTED, text=text)
            stepped = give_up(operation, S.FAILED_CLEAN, problem, now_s)
        case Killed(problem=problem):
            stepped = killed(operation, problem, now_s)
        case Rebooted():
            stepped = rebooted(operation)
        case _ as never:
            assert_never(never)
    return stepped


def can_abort(operation: Operation) -> bool:
    return operation.state in LEASED


def _tick(operation: Operation, now_s: float) -> Stepped:
    if operation.state not in LEASED:
        effect = KillContainer() if operation.state is S.KILLING else Look()
        # What is decided when time is over is decided on a fresh look, too.
        return after_absence(operation, now_s), (effect,)
    if now_s >= operation.until_s:
        text = "the lease ended before it was told what came of it"
        problem = Problem(code=Code.DEADLINE_EXCEEDED, text=text)
        return give_up(operation, S.EXPIRED, problem, now_s)
    return _go_on(operation, now_s)


def _go_on(operation: Operation, now_s: float) -> Stepped:
    ours = operation.owner is GpuOwner.DRIVER
    if operation.state in (S.PREPARING, S.LOCKED) and ours:
        return _take_off(operation, now_s)
    if operation.state in (S.PREPARING, S.CHECKED) and not ours:
        return replace(operation, state=S.DELEGATED), ()
    return operation, ()


def _take_off(operation: Operation, now_s: float) -> Stepped:
    problem = loss(operation)
    if problem is not None:
        return give_up(operation, S.FAILED_CLEAN, problem, now_s)
    effect = take_off(operation)
    if effect is None:
        return replace(operation, state=S.GPU_CHECKPOINTED), ()
    unlocked = any(each.state is CudaState.RUNNING for each in operation.processes)
    return replace(operation, state=S.PREPARING if unlocked else S.LOCKED), (effect,)


def _moved(operation: Operation, event: Moved, now_s: float) -> Stepped:
    after = updated(operation, event.states)
    problem = event.problem
    if problem is None and after.processes == operation.processes:
        problem = Problem(code=Code.INTERNAL, text="a process stayed as it was")
    match operation.state:
        case S.PREPARING | S.LOCKED if problem is not None:
            return give_up(after, S.FAILED_CLEAN, problem, now_s)
        case S.PREPARING | S.LOCKED:
            return _take_off(after, now_s)
        case S.GPU_RESTORING:
            problem = problem or loss(after)
            return kill(after, problem, now_s) if problem else _bring_on(after, now_s)
        case S.CAPTURED | S.ROLLING_BACK if problem is None:
            return _bring_back(after, now_s)
        case S.CAPTURED | S.ROLLING_BACK if problem is not None:
            # The next tick tries again: a GPU that is full now may not be so then.
            told = with_cause(after, problem)
            return (told, ()) if now_s < told.until_s else _not_back(told)
        case _:
            return after, ()


def _seen(operation: Operation, event: Seen, now_s: float) -> Stepped:
    match operation.state:
        case S.ROLLING_BACK | S.CAPTURED:
            return _seen_to_bring_back(operation, event, now_s)
        case S.VERIFYING if operation.kind is Kind.CHECKPOINT:
            return _seen_after_dump(operation, event, now_s)
        case S.VERIFYING | S.GPU_RESTORING:
            return _seen_after_restore(operation, event, now_s)
        case _:
            return operation, ()


def _seen_to_bring_back(operation: Operation, event: Seen, now_s: float) -> Stepped:
    if event.problem is None and not event.busy:
        return _bring_back(operation, now_s)
    if now_s < operation.until_s:
        return operation, ()
    return unhealthy(operation, event.problem.text if event.problem else "it is still worked on")


def _seen_after_dump(operation: Operation, event: Seen, now_s: float) -> Stepped:
    """The source comes back by the runtime's own doing, whose end is waited for."""
    if event.busy and now_s < operation.until_s:
        return operation, ()
    if event.problem is None and all(map(is_back, operation.processes)):
        return replace(operation, state=operation.ending), ()
    may_come = operation.runner is None or event.problem is not None
    if now_s < operation.until_s and may_come:
        return operation, ()
    left = refs(each for each in operation.processes if not is_back(each))
    text = f"{left or 'the source'} did not come back to the GPU after the dump"
    return roll_back(operation, S.DONE, Problem(code=Code.DATA_LOSS, text=text), now_s)


def _seen_after_restore(operation: Operation, event: Seen, now_s: float) -> Stepped:
    late = now_s >= operation.until_s
    problem = loss(operation) or (event.problem if late else None)
    if problem is not None:
        return kill(operation, problem, now_s)
    if not late and (event.busy or event.problem is not None):
        return operation, ()
    if operation.state is S.GPU_RESTORING:
        return _bring_on(operation, now_s)
    if all(map(is_running, operation.processes)):
        if is_unheard(operation) and any(each.state for each in operation.processes):
            # Processes that run on their GPUs tell that it was restored.
            operation = replace(operation, ending=S.DONE, text="")
        return replace(operation, state=operation.ending), ()
    if operation.runner is None and not late:
        return operation, ()
    names = refs(each for each in operation.processes if not is_running(each))
    text = f"{names} did not come back to the GPU"
    return kill(operation, Problem(code=Code.DATA_LOSS, text=text), now_s)


def _bring_on(operation: Operation, now_s: float) -> Stepped:
    """Let restored processes of ours run."""
    effect = bring_back(operation)
    if effect is not None:
        return operation, (effect,)
    until_s = now_s + verify_s(operation)
    return replace(operation, state=S.VERIFYING, until_s=until_s), (Look(),)


def _bring_back(operation: Operation, now_s: float) -> Stepped:
    # Late or not: time may have passed while nobody tried. What fails then is the end.
    effect = bring_back(operation)
    if effect is not None:
        return operation, (effect,)
    if not all(map(is_back, operation.processes)):
        return _not_back(operation)
    if operation.state is S.CAPTURED:
        until_s = now_s + verify_s(operation)
        return replace(operation, state=S.VERIFYING, until_s=until_s), (Look(),)
    return replace(operation, state=operation.ending), ()


def _not_back(operation: Operation) -> Stepped:
    left = refs(each for each in operation.processes if not is_back(each))
    return unhealthy(operation, f"{left} cannot be brought back to the GPU")


def _finished(operation: Operation, outcome: Outcome, text: str, now_s: float) -> Stepped:
    if operation.state not in LEASED:
        return operation, ()
    told = replace(operation, outcome=outcome)
    if outcome is not Outcome.SUCCEEDED:
        problem = Problem(code=Code.OK, text=text or "it was told of no success")
        return give_up(told, S.FAILED_CLEAN, problem, now_s)
    ours = told.owner is GpuOwner.DRIVER
    until_s = now_s + verify_s(told)
    if told.kind is Kind.RESTORE:
        state = S.GPU_RESTORING if ours else S.VERIFYING
        return replace(told, state=state, until_s=until_s), (Look(),)
    if ours and told.state is not S.GPU_CHECKPOINTED:
        text = "the dump was taken before the processes were off their GPUs"
        problem = Problem(code=Code.FAILED_PRECONDITION, text=text)
        return give_up(told, S.FAILED_CLEAN, problem, now_s)
    if ours and told.after is AfterCheckpoint.LEAVE_RUNNING:
        return replace(told, state=S.CAPTURED, until_s=now_s + rollback_s(told)), (Look(),)
    return replace(told, state=S.VERIFYING, until_s=until_s), (Look(),)
