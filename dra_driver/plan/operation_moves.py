"""Which processes of an operation are moved next, all or none of a container."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dra_driver.model.checkpoint import HeldProcess, Kind, Operation
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.plan.operation_values import (
    CheckpointProcesses,
    LockProcesses,
    Move,
    ProcessState,
    RestoreProcesses,
    UnlockProcesses,
)


def updated(operation: Operation, states: Iterable[ProcessState]) -> Operation:
    """Note what was seen; a restored process that is new has to run in the end."""
    seen = {each.process: each.state for each in states}
    known = tuple(
        replace(each, state=seen.get(each.process, each.state)) for each in operation.processes
    )
    if operation.kind is Kind.RESTORE:
        before = {each.process for each in known}
        known += tuple(
            HeldProcess(process=process, found=CudaState.RUNNING, state=state)
            for process, state in seen.items()
            if process not in before and state is not None
        )
    return replace(operation, processes=known)


def take_off(operation: Operation) -> Move | None:
    """The next move off the GPUs: all are locked before the first is checkpointed."""
    running = _in_state(operation, CudaState.RUNNING)
    if running:
        return LockProcesses(processes=running)
    locked = _in_state(operation, CudaState.LOCKED)
    return CheckpointProcesses(processes=locked) if locked else None


def bring_back(operation: Operation) -> Move | None:
    """The next move back, in the other order: all are restored before the first is unlocked.

    Those whose state is lost are left alone.
    """
    restored = tuple(
        each.process
        for each in operation.processes
        if each.state is CudaState.CHECKPOINTED and each.found is not CudaState.CHECKPOINTED
    )
    if restored:
        moved = any(each.old != each.new for each in operation.device_map)
        return RestoreProcesses(
            processes=tuple(reversed(restored)), mapping=operation.device_map if moved else ()
        )
    unlocked = tuple(
        each.process
        for each in operation.processes
        if each.state is CudaState.LOCKED and each.found is CudaState.RUNNING
    )
    return UnlockProcesses(processes=tuple(reversed(unlocked))) if unlocked else None


def is_back(process: HeldProcess) -> bool:
    """Whether it has ended, or is as it was found.

    A process that was found locked and runs now was let go by its user: nothing is left to do.
    """
    return process.state in (None, CudaState.RUNNING, process.found)


def is_running(process: HeldProcess) -> bool:
    return process.state in (None, CudaState.RUNNING)


def lost(process: HeldProcess) -> bool:
    return process.state is CudaState.FAILED


def refs(processes: Iterable[HeldProcess]) -> str:
    """Name processes for people."""
    pids = [str(each.process.pid) for each in processes]
    return f"process{'es' if len(pids) > 1 else ''} {', '.join(pids)}" if pids else ""


def _in_state(operation: Operation, state: CudaState) -> tuple[ProcessRef, ...]:
    return tuple(each.process for each in operation.processes if each.state is state)
