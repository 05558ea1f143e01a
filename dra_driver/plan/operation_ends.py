"""How an operation of the checkpoint hook is given up, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dra_driver.model.checkpoint import Code, Kind, Operation, OperationState, Outcome
from dra_driver.plan.operation_moves import lost, refs
from dra_driver.plan.operation_times import kill_s, rollback_s, verify_s
from dra_driver.plan.operation_values import (
    Aborted,
    Effect,
    Event,
    KillContainer,
    Look,
    Problem,
    TellPod,
)

CHECKPOINT_FAILED: Final = "GPUCheckpointFailed"
RESTORE_FAILED: Final = "GPURestoreFailed"
"""Reasons of Events."""

UNHEARD: Final = {
    Kind.CHECKPOINT: (
        "the runtime ended without telling what came of the dump: it is there where the kubelet"
        " says so"
    ),
    Kind.RESTORE: "the runtime ended without telling what came of the restore",
}
"""Why an operation is given up whose runtime said no last word, or said it while we were away."""

S = OperationState
Stepped = tuple[Operation, tuple[Effect, ...]]

LEASED: Final = frozenset((S.PREPARING, S.LOCKED, S.GPU_CHECKPOINTED, S.DELEGATED, S.CHECKED))
"""States that wait for the caller."""


def give_up(
    operation: Operation, ending: OperationState, problem: Problem, now_s: float
) -> Stepped:
    """End what waits for its caller; a restored container runs on only where its state is good."""
    if operation.state not in LEASED:
        return operation, ()
    if operation.kind is Kind.CHECKPOINT:
        return roll_back(operation, ending, problem, now_s)
    told = with_cause(operation, problem)
    until_s = now_s + verify_s(told)
    return replace(told, state=S.VERIFYING, ending=ending, until_s=until_s), (Look(),)


def roll_back(
    operation: Operation, ending: OperationState, problem: Problem, now_s: float
) -> Stepped:
    told = with_cause(operation, problem)
    until_s = now_s + rollback_s(told)
    return replace(told, state=S.ROLLING_BACK, ending=ending, until_s=until_s), (Look(),)


def kill(operation: Operation, problem: Problem, now_s: float) -> Stepped:
    told = with_cause(operation, problem)
    return replace(told, state=S.KILLING, until_s=now_s + kill_s()), (KillContainer(),)


def killed(operation: Operation, problem: Problem | None, now_s: float) -> Stepped:
    if operation.state is not S.KILLING:
        return operation, ()
    if problem is not None:
        if now_s < operation.until_s:
            return operation, ()
        return unhealthy(operation, "its processes could not be killed in time")
    text = f"its GPU state could not be restored, so the container was killed: {operation.text}"
    return replace(operation, state=S.FAILED_KILLED), (TellPod(reason=RESTORE_FAILED, text=text),)


def unhealthy(operation: Operation, text: str) -> Stepped:
    told = with_cause(operation, Problem(code=Code.DATA_LOSS, text=text))
    reason = CHECKPOINT_FAILED if told.kind is Kind.CHECKPOINT else RESTORE_FAILED
    first = f" ({told.text})" if told.text != text else ""
    return (
        replace(told, state=S.FAILED_UNHEALTHY, code=Code.DATA_LOSS),
        (TellPod(reason=reason, text=f"{text}{first}: delete the pod"),),
    )


def rebooted(operation: Operation) -> Stepped:
    """Its processes are gone; an image that was there before stays good."""
    gone = tuple(replace(each, state=None) for each in operation.processes)
    there = operation.kind is Kind.CHECKPOINT and operation.state in (S.CAPTURED, S.VERIFYING)
    if there or operation.state is S.ROLLING_BACK:
        return replace(operation, processes=gone, state=operation.ending), ()
    told = with_cause(operation, Problem(code=Code.ABORTED, text="the node was restarted"))
    return replace(told, processes=gone, state=S.FAILED_CLEAN), ()


def ended(operation: Operation, event: Event) -> Operation:
    """Give one in a final state as it is after an event."""
    acknowledge = isinstance(event, Aborted) and event.acknowledge
    if acknowledge and operation.state is S.FAILED_UNHEALTHY:
        return replace(operation, acknowledged=True)
    return operation


def is_unheard(operation: Operation) -> bool:
    """Whether it was given up for no other reason than that nobody told what came of it."""
    return operation.outcome is Outcome.UNKNOWN and operation.text == UNHEARD[operation.kind]


def with_cause(operation: Operation, problem: Problem) -> Operation:
    """The first cause stays."""
    if operation.text:
        return operation
    return replace(operation, text=problem.text, code=problem.code)


def loss(operation: Operation) -> Problem | None:
    """Whether the state of a process is lost."""
    broken = tuple(filter(lost, operation.processes))
    if not broken:
        return None
    return Problem(code=Code.DATA_LOSS, text=f"the CUDA state of {refs(broken)} is lost")
