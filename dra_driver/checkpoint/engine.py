"""Moves operations on: each step is stored before its effects are carried out.

Steps without effects are stored together: a process that is killed between them has done nothing
yet of which the next one would have to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from dra_driver import log
from dra_driver.checkpoint.effects import Effects
from dra_driver.checkpoint.table import KeyedLocks, OperationTable
from dra_driver.checkpoint.world import HookWorld
from dra_driver.model.checkpoint import (
    HookAnswer,
    HookRequest,
    Operation,
    OperationState,
    StoredAnswer,
)
from dra_driver.plan.operation_values import Effect, Event, TellPod
from dra_driver.plan.operations import step

_log = log.get(__name__)
_Steps = list[tuple[Operation, Operation]]


def digest_of(request: HookRequest) -> str:
    """Tell requests apart; two that are equal have one digest."""
    return sha256(repr(request).encode()).hexdigest()


def answered(operation: Operation, request: HookRequest, answer: HookAnswer) -> Operation:
    """Note what a call that names the operation is answered; the first answer in a phase stays."""
    known = any(each.phase is request.phase for each in operation.answers)
    if known or operation.id != request.operation_id:
        return operation
    stored = StoredAnswer(
        phase=request.phase, digest=digest_of(request), code=answer.code, text=answer.text
    )
    return replace(operation, answers=(*operation.answers, stored))


class Engine:
    """One node's operations; whoever moves one holds its lock."""

    def __init__(self, world: HookWorld, table: OperationTable) -> None:
        self.world = world
        self.table = table
        self.locks = KeyedLocks()
        self.effects = Effects(world)

    def advance(
        self,
        operation: Operation,
        event: Event,
        *,
        now: bool = True,
        last: Callable[[Operation], Operation] = lambda operation: operation,
    ) -> Operation:
        """Give the operation as it is after an event and all that follows from it, stored.

        Args:
            operation: as it is stored, or one that is not yet, or has more than is stored.
            event: what happened.
            now: carry effects out; else they are pending until the next tick.
            last: adds to the operation before it is stored for the last time.

        Raises:
            AdapterError: it cannot be stored; what was not stored has not happened.
        """
        pending, steps = deque((event,)), _Steps()
        while pending:
            operation, effects = self._step(operation, pending.popleft(), steps)
            due = [each for each in effects if now or isinstance(each, TellPod)]
            if due:
                self._store(operation, steps)
            for effect in due:
                answer = self.effects.carry_out(operation, effect)
                if answer is not None:
                    pending.append(answer)
        operation = last(operation)
        self._store(operation, steps)
        return operation

    def current(self, operation: Operation) -> Operation:
        """The operation as it is now."""
        return self.table.get(operation.id) or operation

    def keep(self, answer: HookAnswer, request: HookRequest) -> HookAnswer:
        """Store what a call was answered, where it is about the operation that it names.

        The caller holds its lock. Raises AdapterError.
        """
        known = answer.operation
        if known is None or known.id != request.operation_id:
            return answer
        kept = answered(self.current(known), request, answer)
        self._store(kept, [])
        return replace(answer, operation=kept)

    def _step(
        self, operation: Operation, event: Event, steps: _Steps
    ) -> tuple[Operation, tuple[Effect, ...]]:
        after, effects = step(operation, event, self.world.clock.monotonic_s())
        if after.state is not operation.state:
            after = replace(after, changed_wall_s=self.world.clock.wall_s())
            steps.append((operation, after))
        return after, effects

    def _store(self, operation: Operation, steps: _Steps) -> None:
        """Store it where it is not so yet, and report what led to it."""
        if self.table.get(operation.id) != operation:
            self.table.save(operation)
        for before, after in steps:
            self._report(before, after)
        steps.clear()

    def _report(self, before: Operation, after: Operation) -> None:
        _log.info(
            "Operation moved on",
            operation=after.id,
            kind=after.kind.value,
            container=after.target.container_id,
            state=after.state.value,
            before=before.state.value,
            reason=after.text,
        )
        recorder, kind = self.world.recorder, after.kind.value
        seconds = max(0.0, after.changed_wall_s - before.changed_wall_s)
        recorder.observe("hook_state_seconds", seconds, kind=kind, state=before.state.value)
        if after.state.final:
            recorder.count("hook_operations_total", kind=kind, outcome=after.state.value)
        if after.state is OperationState.KILLING:
            recorder.count("hook_verify_failures_total")
        if OperationState.EXPIRED in (after.state, after.ending) and after.ending != before.ending:
            recorder.count("hook_leases_expired_total", kind=kind)
