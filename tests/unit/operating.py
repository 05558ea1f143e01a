"""Operations for tests, and a world whose processes an operation moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_driver.model.checkpoint import (
    Code,
    GpuOwner,
    HeldProcess,
    Kind,
    Operation,
    OperationState,
    Target,
    Trigger,
)
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.plan.operation_values import (
    CheckpointProcesses,
    Effect,
    Event,
    KillContainer,
    Killed,
    LockProcesses,
    Look,
    Move,
    Moved,
    Problem,
    ProcessState,
    RestoreProcesses,
    Seen,
    TellPod,
    UnlockProcesses,
)
from dra_driver.plan.operations import step
from tests.builders import BOOT, ref

NOW_S = 1000.0
LEASE_S = 300.0

_MOVES = {
    LockProcesses: (CudaState.RUNNING, CudaState.LOCKED),
    CheckpointProcesses: (CudaState.LOCKED, CudaState.CHECKPOINTED),
    RestoreProcesses: (CudaState.CHECKPOINTED, CudaState.LOCKED),
    UnlockProcesses: (CudaState.LOCKED, CudaState.RUNNING),
}


def process(number: int) -> ProcessRef:
    return ProcessRef(pid=100 + number, started=5000 + number)


def operation(*found: CudaState, **changes: Any) -> Operation:
    """A checkpoint by the driver that has just begun, of processes in these states."""
    fields: dict[str, Any] = {
        "id": "op-1",
        "kind": Kind.CHECKPOINT,
        "state": OperationState.PREPARING,
        "trigger": Trigger.CONTROLLER,
        "target": Target(container_id="c1", init=process(0)),
        "owner": GpuOwner.DRIVER,
        "boot_id": BOOT,
        "until_s": NOW_S + LEASE_S,
        "started_wall_s": 1.0,
        "changed_wall_s": 1.0,
        "claims": (ref(1),),
        "processes": tuple(
            HeldProcess(process=process(number), found=state, state=state)
            for number, state in enumerate(found)
        ),
    }
    return Operation(**(fields | changes))


class World:
    """CUDA processes as they really are; carries effects out as the handler has to.

    Attributes:
        states: None: the process has ended.
        broken: moves that fail now.
        killed: the container was killed.
    """

    def __init__(self, states: Sequence[CudaState | None]) -> None:
        self.states = {process(number): state for number, state in enumerate(states)}
        self.broken: set[type[Effect]] = set()
        self.busy = False
        self.killed = False
        self.told: list[TellPod] = []

    def carry_out(self, effect: Effect) -> Event | None:
        match effect:
            case TellPod():
                self.told.append(effect)
                return None
            case Look():
                return Seen(states=self._seen(), busy=self.busy, problem=self._fault(Look))
            case KillContainer():
                if problem := self._fault(KillContainer):
                    return Killed(problem=problem)
                self.states = dict.fromkeys(self.states)
                self.killed = True
                return Killed()
            case _:
                return self._move(effect)

    def _move(self, effect: Move) -> Moved:
        before, after = _MOVES[type(effect)]
        problem = None
        for each in effect.processes:
            if self.states[each] is before:
                if problem := self._fault(type(effect)):
                    break
                self.states[each] = after
        return Moved(states=self._seen(), problem=problem)

    def _seen(self) -> tuple[ProcessState, ...]:
        return tuple(ProcessState(process=each, state=state) for each, state in self.states.items())

    def _fault(self, kind: type[Effect]) -> Problem | None:
        if kind in self.broken:
            return Problem(code=Code.UNAVAILABLE, text=f"{kind.__name__} fails")
        return None


def run(operation: Operation, event: Event, world: World, now_s: float = NOW_S) -> Operation:
    """Let an operation go on from an event until nothing is pending."""
    pending = [event]
    while pending:
        operation, effects = step(operation, pending.pop(0), now_s)
        pending += [answer for each in effects if (answer := world.carry_out(each)) is not None]
    return operation
