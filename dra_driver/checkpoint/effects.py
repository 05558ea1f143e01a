"""Makes the effects of operations real."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from dra_driver import log
from dra_driver.checkpoint.world import HookWorld
from dra_driver.errors import AdapterError, CudaFailed, OutOfTime
from dra_driver.model.checkpoint import Code, GpuOwner, Kind, Operation
from dra_driver.model.claim import PodRef
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.plan.operation_times import LOCK_S, LOOK_S, copy_s
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

_log = log.get(__name__)
_Call = Callable[[ProcessRef, Deadline], None]


class Effects:
    """Carries effects out; each is bounded in time, whoever hangs."""

    def __init__(self, world: HookWorld) -> None:
        self._world = world

    def carry_out(self, operation: Operation, effect: Effect) -> Event | None:
        """Give the event that answers an effect; None: there is none."""
        match effect:
            case Look():
                return self._look(operation)
            case KillContainer():
                return self._kill(operation)
            case TellPod(reason=reason, text=text):
                self.tell(operation, reason=reason, text=text)
                return None
            case _:
                return self._move(operation, effect)

    def tell(self, operation: Operation, *, reason: str, text: str) -> None:
        """Write an Event about the pod, or about its claims where the pod is not known."""
        target = operation.target
        _log.warning("A checkpoint or restore failed", operation=operation.id, reason=text)
        if target.pod_name and target.pod_namespace:
            pod = PodRef(target.pod_name, target.pod_uid)
            self._world.pod_events.emit_pod(target.pod_namespace, pod, reason=reason, text=text)
            return
        for claim in operation.claims:
            self._world.events.emit(claim, reason=reason, text=text)

    def _look(self, operation: Operation) -> Seen:
        late = self._now_s() >= operation.until_s
        try:
            busy = self._busy(operation)
            if busy is not None and not late:
                # Its state changes without us, and a frozen process may never answer.
                unsure = operation.owner is not GpuOwner.NONE
                return Seen(busy=True, problem=busy if unsure else None)
            looked_at = self._looked_at(operation)
        except AdapterError as error:
            return Seen(problem=_problem(error))
        states, problem = self._states(looked_at)
        return Seen(states=states, busy=busy is not None, problem=problem)

    def _busy(self, operation: Operation) -> Problem | None:
        runner, init = operation.runner, operation.target.init
        if runner is not None and self._world.alive(runner):
            return Problem(code=Code.UNAVAILABLE, text="the runtime is still at work")
        if init is not None and self._world.containers.frozen(init):
            return Problem(code=Code.UNAVAILABLE, text="the container is frozen")
        return None

    def _looked_at(self, operation: Operation) -> tuple[ProcessRef, ...]:
        if operation.kind is Kind.CHECKPOINT:
            return tuple(each.process for each in operation.processes)
        init = operation.target.init or self._world.containers.find(operation.target.container_id)
        there = self._world.containers.processes(init) if init is not None else ()
        known = (each.process for each in operation.processes)
        return tuple(dict.fromkeys((*there, *known)))

    def _states(
        self, processes: Iterable[ProcessRef]
    ) -> tuple[tuple[ProcessState, ...], Problem | None]:
        states, problem = [], None
        for process in processes:
            try:
                state = self._state(process)
            except AdapterError as error:
                problem = problem or _problem(error)
                continue
            states.append(ProcessState(process=process, state=state))
        return tuple(states), problem

    def _state(self, process: ProcessRef) -> CudaState | None:
        if not self._world.alive(process):
            return None
        try:
            return self._world.cuda.state(process, self._in(LOOK_S))
        except AdapterError:
            if not self._world.alive(process):
                return None
            raise

    def _move(self, operation: Operation, effect: Move) -> Moved:
        gpu_bytes = {each.process: each.gpu_bytes for each in operation.processes}
        before, call = self._call(effect)
        problem = None
        try:
            if operation.target.init is not None and self._world.containers.frozen(
                operation.target.init
            ):
                text = "the container is frozen: thaw it"
                return Moved(problem=Problem(code=Code.FAILED_PRECONDITION, text=text))
            for process in effect.processes:
                if self._state(process) is before:
                    quick = isinstance(effect, LockProcesses | UnlockProcesses)
                    limit_s = LOCK_S if quick else copy_s(gpu_bytes.get(process, 0))
                    call(process, self._in(limit_s))
        except AdapterError as error:
            problem = _problem(error)
            _log.warning("A CUDA transition failed", operation=operation.id, error=str(error))
        states, unseen = self._states(effect.processes)
        return Moved(states=states, problem=problem or unseen)

    def _call(self, effect: Move) -> tuple[CudaState, _Call]:
        cuda = self._world.cuda
        match effect:
            case LockProcesses():
                return CudaState.RUNNING, cuda.lock
            case CheckpointProcesses():
                return CudaState.LOCKED, cuda.checkpoint
            case RestoreProcesses(mapping=mapping):
                return CudaState.CHECKPOINTED, lambda process, deadline: cuda.restore(
                    process, mapping, deadline
                )
            case UnlockProcesses():
                return CudaState.LOCKED, cuda.unlock
            case _ as never:
                assert_never(never)

    def _kill(self, operation: Operation) -> Killed:
        containers, target = self._world.containers, operation.target
        try:
            init = target.init or containers.find(target.container_id)
            there = containers.processes(init) if init is not None else ()
            known = tuple(each.process for each in operation.processes)
            containers.kill(tuple(dict.fromkeys((*there, *known))))
            left = [each.pid for each in (*there, *known) if self._world.alive(each)]
        except AdapterError as error:
            return Killed(problem=_problem(error))
        if left:
            text = f"processes {', '.join(map(str, sorted(set(left))))} have not ended yet"
            return Killed(problem=Problem(code=Code.UNAVAILABLE, text=text))
        return Killed()

    def _in(self, seconds: float) -> Deadline:
        return Deadline(self._now_s() + seconds)

    def _now_s(self) -> float:
        return self._world.clock.monotonic_s()


def _problem(error: AdapterError) -> Problem:
    match error:
        case OutOfTime():
            code = Code.DEADLINE_EXCEEDED
        case CudaFailed():
            code = Code.FAILED_PRECONDITION
        case _:
            code = Code.UNIMPLEMENTED if error.permanent else Code.UNAVAILABLE
    return Problem(code=code, text=str(error))
