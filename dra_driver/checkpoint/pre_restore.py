"""Before a restore."""

from __future__ import annotations

from dataclasses import replace

from dra_driver.checkpoint.engine import Engine, answered
from dra_driver.checkpoint.finder import Found
from dra_driver.model.checkpoint import (
    Code,
    HookAnswer,
    HookRequest,
    Kind,
    Operation,
    OperationState,
    Target,
    Trigger,
)
from dra_driver.plan.operation_ends import RESTORE_FAILED
from dra_driver.plan.operation_times import lease_s
from dra_driver.plan.operation_values import Tick
from dra_driver.plan.restore import (
    NotRestorable,
    Restorable,
    RestoreFacts,
    checkpoint_named,
    decide_restore,
)

_WAIT_S = 2.0


class PreRestore:
    """The caller holds the lock of all restores."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._world = engine.world

    def answer(self, request: HookRequest, found: Found) -> HookAnswer:
        """Raises AdapterError."""
        missing = set(request.claims) - {record.claim.uid for record in found.records}
        if missing:
            text = f"claim {', '.join(sorted(missing))} is not prepared on this node"
            return HookAnswer(code=Code.FAILED_PRECONDITION, text=text)
        if not found.records:
            return HookAnswer()
        known = self._engine.table.get(request.operation_id) or self._announced(request, found)
        if known is not None:
            return self._joined(known, request, found)
        return self._first(request, found)

    def _first(self, request: HookRequest, found: Found) -> HookAnswer:
        inventory = self._world.inventory()
        if inventory is None:
            text = "the GPU driver of this node cannot be read now: try again"
            return HookAnswer(code=Code.UNAVAILABLE, text=text)
        named = checkpoint_named(request, found.records)
        facts = RestoreFacts(
            request=request,
            records=found.records,
            inventory=inventory,
            node=self._world.node,
            checkpoint_id=named,
            checkpoint=self._engine.table.get(named) if named else None,
        )
        decided = decide_restore(facts)
        if isinstance(decided, NotRestorable):
            return self._refused(request, found, decided)
        if request.dry_run:
            return HookAnswer(warnings=decided.warnings)
        return self._begun(request, found, named, decided)

    def _announced(self, request: HookRequest, found: Found) -> Operation | None:
        """The restore that is under way on this container, or was announced for its claims."""
        if request.trigger is Trigger.CONTROLLER:
            return None
        here = self._engine.table.open_on(found.target.container_id, Kind.RESTORE)
        if here is not None:
            return here
        uids = {record.claim.uid for record in found.records}
        for each in self._engine.table.under_way():
            waits = each.kind is Kind.RESTORE
            if waits and not each.target.container_id and uids & {c.uid for c in each.claims}:
                return each
        return None

    def _joined(self, known: Operation, request: HookRequest, found: Found) -> HookAnswer:
        with self._engine.locks.held(known.id, _WAIT_S) as got:
            if not got:
                return HookAnswer(code=Code.UNAVAILABLE, text="it is being worked on: try again")
            current = self._engine.current(known)
            if current.state.final:
                return HookAnswer(operation=current)
            joined = replace(
                current,
                target=merged_target(current.target, found.target),
                runner=request.runner or current.runner,
            )
            self._engine.table.save(joined)
        return HookAnswer(operation=joined, warnings=joined.warnings)

    def _begun(
        self, request: HookRequest, found: Found, named: str, decided: Restorable
    ) -> HookAnswer:
        operation = restore_operation(request, found, self._engine)
        operation = replace(
            operation,
            owner=decided.owner,
            checkpoint_id=named,
            manifest=decided.manifest,
            device_map=decided.device_map,
            warnings=decided.warnings,
        )
        with self._engine.locks.held(operation.id, _WAIT_S):
            begun = self._engine.advance(
                operation,
                Tick(),
                now=False,
                last=lambda after: answered(after, request, HookAnswer()),
            )
        return HookAnswer(operation=begun, warnings=begun.warnings)

    def _refused(self, request: HookRequest, found: Found, decided: NotRestorable) -> HookAnswer:
        problem = decided.problem
        if not request.dry_run:
            about = restore_operation(request, found, self._engine)
            self._engine.effects.tell(about, reason=RESTORE_FAILED, text=problem.text)
        return HookAnswer(code=problem.code, text=problem.text, mismatches=decided.mismatches)


def restore_operation(request: HookRequest, found: Found, engine: Engine) -> Operation:
    """A restore of which nothing is decided yet; nothing is stored."""
    clock = engine.world.clock
    now_wall_s = clock.wall_s()
    return Operation(
        id=request.operation_id,
        kind=Kind.RESTORE,
        state=OperationState.CHECKED,
        trigger=request.trigger,
        target=found.target,
        owner=request.owner,
        boot_id=engine.world.boot_id,
        until_s=clock.monotonic_s() + lease_s(request.lease_s),
        started_wall_s=now_wall_s,
        changed_wall_s=now_wall_s,
        claims=tuple(record.claim for record in found.records),
        runner=request.runner,
    )


def merged_target(known: Target, found: Target) -> Target:
    return Target(
        container_id=found.container_id or known.container_id,
        pod_uid=found.pod_uid or known.pod_uid,
        pod_namespace=found.pod_namespace or known.pod_namespace,
        pod_name=found.pod_name or known.pod_name,
        container_name=found.container_name or known.container_name,
        init=found.init or known.init,
    )
