"""After a dump or a restore: what is left to do is done by the keeper."""

from __future__ import annotations

from dataclasses import replace

from dra_driver.checkpoint.engine import Engine, answered
from dra_driver.checkpoint.finder import Finder
from dra_driver.checkpoint.pre_restore import merged_target, restore_operation
from dra_driver.model.checkpoint import (
    Code,
    GpuOwner,
    HookAnswer,
    HookRequest,
    Kind,
    OperationState,
    Outcome,
    Trigger,
)
from dra_driver.model.deadline import Deadline
from dra_driver.plan.operation_ends import LEASED
from dra_driver.plan.operation_values import Finished, Tick

_WAIT_S = 2.0


class PostCalls:
    def __init__(self, engine: Engine, finder: Finder) -> None:
        self._engine = engine
        self._finder = finder

    def answer(self, request: HookRequest, deadline: Deadline) -> HookAnswer:
        """Raises AdapterError."""
        kind = request.phase.kind
        table = self._engine.table
        operation = table.get(request.operation_id)
        if operation is None and request.trigger is not Trigger.CONTROLLER:
            operation = table.open_on(request.target.container_id, kind)
        if operation is not None and operation.state is not OperationState.EXPIRED:
            return self._told(operation.id, request)
        late = self._verified(request, deadline) if kind is Kind.RESTORE else HookAnswer()
        # What is known of the operation that expired says more than the verification alone.
        return replace(late, operation=operation) if operation is not None else late

    def _told(self, operation_id: str, request: HookRequest) -> HookAnswer:
        with self._engine.locks.held(operation_id, _WAIT_S) as got:
            operation = self._engine.table.get(operation_id)
            if operation is None or operation.state not in LEASED:
                # It is being verified or has ended: there is nothing to wait for.
                return HookAnswer(operation=operation)
            if not got:
                return HookAnswer(code=Code.UNAVAILABLE, text="it is being worked on: try again")
            known = replace(
                operation,
                target=merged_target(operation.target, request.target),
                runner=request.runner or operation.runner,
            )
            event = Finished(outcome=request.outcome, text=request.outcome_text)
            after = self._engine.advance(
                known,
                event,
                now=False,
                last=lambda told: answered(told, request, HookAnswer()),
            )
            return HookAnswer(operation=after)

    def _verified(self, request: HookRequest, deadline: Deadline) -> HookAnswer:
        """Verify a restored container of which nobody told before."""
        if request.trigger is Trigger.CONTROLLER or request.outcome is not Outcome.SUCCEEDED:
            return HookAnswer()
        found = self._finder.find(request, deadline)
        if not found.records:
            return HookAnswer()
        taken = self._engine.table.get(request.operation_id) is not None
        named = replace(request, operation_id=f"{request.operation_id}.late") if taken else request
        if taken and self._engine.table.get(named.operation_id) is not None:
            return HookAnswer()
        operation = replace(
            restore_operation(named, found, self._engine), owner=GpuOwner.CRIU_PLUGIN
        )
        event = Finished(outcome=request.outcome, text=request.outcome_text)
        with self._engine.locks.held(operation.id, _WAIT_S):
            begun = self._engine.advance(operation, Tick(), now=False)
            return HookAnswer(operation=self._engine.advance(begun, event, now=False))
