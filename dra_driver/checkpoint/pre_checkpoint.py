"""Before a dump."""

from __future__ import annotations

from dataclasses import replace

from dra_driver import log
from dra_driver.checkpoint.engine import Engine, answered
from dra_driver.checkpoint.finder import Found
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import (
    Code,
    GpuOwner,
    HeldProcess,
    HookAnswer,
    HookRequest,
    Kind,
    Operation,
    OperationState,
    Target,
    Trigger,
)
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import Inventory
from dra_driver.model.record import Record
from dra_driver.plan.checkpoint import Admitted, CheckpointFacts, decide_checkpoint
from dra_driver.plan.operation_times import LOOK_S, lease_s
from dra_driver.plan.operation_values import Problem, RunnerEnded, Tick

REFUSED = "CheckpointRefused"
"""Reason of the Event."""

_FROZEN_LOOK_S = 0.5
"""For all processes of a frozen container, of which none may ever answer."""

_READY = (OperationState.GPU_CHECKPOINTED, OperationState.DELEGATED)

_log = log.get(__name__)


class PreCheckpoint:
    """The caller holds the container's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._world = engine.world

    def answer(self, request: HookRequest, found: Found, deadline: Deadline) -> HookAnswer:
        """Raises AdapterError."""
        if not found.target.container_id and request.trigger is Trigger.CONTROLLER:
            return HookAnswer(code=Code.INVALID_ARGUMENT, text="the target names no container")
        if not found.records:
            return HookAnswer()
        known = self._engine.table.get(request.operation_id)
        if known is not None:
            # It was begun, and nobody was answered: the driver was away between.
            return self._begun(known, request)
        in_the_way = self._engine.table.any_open_on(found.target.container_id)
        if in_the_way is not None:
            joined = self._beside(in_the_way, request)
            if joined is not None:
                return joined
        return self._first(request, found, deadline)

    def _beside(self, other: Operation, request: HookRequest) -> HookAnswer | None:
        """Join or end the operation that is under way; None: it is over."""
        with self._engine.locks.held(other.id, LOOK_S) as got:
            other = self._engine.current(other)
            if got and _joins(request, other):
                joined = replace(other, runner=request.runner)
                self._engine.table.save(joined)
                return HookAnswer(operation=joined, warnings=joined.warnings)
            if got and other.runner is not None and not self._world.alive(other.runner):
                # That dump has ended, if without a word: what it left is brought in order first.
                other = self._engine.advance(other, RunnerEnded())
                other = self._engine.advance(other, Tick())
        if other.state.final:
            return None
        text = (
            f"operation {other.id} ({other.kind.lower()}, {other.state}) is under way on container"
            f" {other.target.container_id[:12]}: wait for its end, or abort it"
        )
        return HookAnswer(code=Code.ABORTED, text=text)

    def _first(self, request: HookRequest, found: Found, deadline: Deadline) -> HookAnswer:
        inventory = self._world.inventory()
        if inventory is None:
            text = "the GPU driver of this node cannot be read now: try again"
            return HookAnswer(code=Code.UNAVAILABLE, text=text)
        facts = self._facts(request, found, inventory, deadline)
        decided = decide_checkpoint(facts)
        if isinstance(decided, Problem):
            return self._refused(request, found, decided)
        if request.dry_run:
            return HookAnswer(warnings=decided.warnings)
        return self._begun(self._operation(request, found, facts, decided), request)

    def _begun(self, operation: Operation, request: HookRequest) -> HookAnswer:
        """Where nothing is done by us, it is stored once, with its answer."""
        with self._engine.locks.held(operation.id, LOOK_S) as got:
            if not got:
                return HookAnswer(code=Code.UNAVAILABLE, text="it is being worked on: try again")
            # The keeper may have moved it on since.
            begun = self._engine.advance(
                self._engine.current(operation),
                Tick(),
                last=lambda after: answered(after, request, _said(after)),
            )
        return _said(begun)

    def _refused(self, request: HookRequest, found: Found, problem: Problem) -> HookAnswer:
        if not request.dry_run:
            about = _blank(request, found.target, self._world.boot_id, found.records)
            self._engine.effects.tell(about, reason=REFUSED, text=problem.text)
        return HookAnswer(code=problem.code, text=problem.text)

    def _facts(
        self, request: HookRequest, found: Found, inventory: Inventory, deadline: Deadline
    ) -> CheckpointFacts:
        init = found.target.init
        containers = self._world.containers
        frozen = init is not None and containers.frozen(init)
        processes = self._processes(found, init, deadline, frozen=frozen) if init else ()
        # The rest is of no account where nothing is on a GPU, and costs a program's start.
        held = any(each.gpu_bytes for each in processes)
        return CheckpointFacts(
            request=request,
            records=found.records,
            inventory=inventory,
            node=self._world.node,
            processes=processes,
            memory=containers.memory(init) if init is not None and held else None,
            frozen=frozen,
            plugin=bool(processes) and self._world.plugin(),
        )

    def _processes(
        self, found: Found, init: ProcessRef, deadline: Deadline, *, frozen: bool
    ) -> tuple[HeldProcess, ...]:
        """Processes that use CUDA, the first one first."""
        used = self._used(found.records)
        until_s = self._world.clock.monotonic_s() + (_FROZEN_LOOK_S if frozen else LOOK_S)
        patience = Deadline(min(deadline.at_s, until_s))
        held = []
        for process in self._world.containers.processes(init):
            if frozen and process.pid not in used:
                continue
            try:
                state = self._world.cuda.state(process, patience)
            except AdapterError:
                # One that computes on the GPU uses CUDA, whatever keeps it from answering.
                if process.pid not in used:
                    raise
                state = CudaState.RUNNING
            if state is not None:
                gpu_bytes = used.get(process.pid, 0)
                held.append(
                    HeldProcess(process=process, found=state, state=state, gpu_bytes=gpu_bytes)
                )
        return tuple(held)

    def _used(self, records: tuple[Record, ...]) -> dict[int, int]:
        """Bytes on the claims' GPUs by pid."""
        used: dict[int, int] = {}
        for gpu in sorted({gpu for record in records for gpu in record.gpus}):
            try:
                for each in self._world.gpus.processes(gpu):
                    used[each.pid] = used.get(each.pid, 0) + (each.memory_bytes or 0)
            except AdapterError as error:
                _log.warning("A GPU does not tell its processes", gpu=gpu, error=str(error))
        return used

    def _operation(
        self, request: HookRequest, found: Found, facts: CheckpointFacts, decided: Admitted
    ) -> Operation:
        clock = self._world.clock
        now_wall_s = clock.wall_s()
        blank = _blank(request, found.target, self._world.boot_id, found.records)
        held = decided.owner is not GpuOwner.NONE
        return replace(
            blank,
            owner=decided.owner,
            until_s=clock.monotonic_s() + lease_s(request.lease_s),
            started_wall_s=now_wall_s,
            changed_wall_s=now_wall_s,
            processes=facts.processes if held else (),
            manifest=decided.manifest,
            warnings=decided.warnings,
        )


def _said(begun: Operation) -> HookAnswer:
    if begun.state in _READY:
        return HookAnswer(operation=begun, warnings=begun.warnings)
    code = begun.code if begun.code is not Code.OK else Code.ABORTED
    return HookAnswer(code=code, text=begun.text, operation=begun)


def _joins(request: HookRequest, other: Operation) -> bool:
    """Whether a dump is the one that a controller has prepared."""
    prepared = other.trigger is Trigger.CONTROLLER and other.kind is Kind.CHECKPOINT
    return prepared and other.state in _READY and request.trigger is not Trigger.CONTROLLER


def _blank(
    request: HookRequest, target: Target, boot_id: str, records: tuple[Record, ...]
) -> Operation:
    return Operation(
        id=request.operation_id,
        kind=Kind.CHECKPOINT,
        state=OperationState.PREPARING,
        trigger=request.trigger,
        target=target,
        owner=GpuOwner.NONE,
        boot_id=boot_id,
        until_s=0.0,
        started_wall_s=0.0,
        changed_wall_s=0.0,
        claims=tuple(record.claim for record in records),
        after=request.after,
        runner=request.runner,
    )
