"""What checkpoints and restores that went wrong mean for the health of GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from dra_driver.model.checkpoint import GpuOwner, Operation, OperationState, Target
from dra_driver.model.cuda import ProcessRef
from dra_driver.model.device import Inventory
from dra_driver.model.health import DeviceHealth, HealthStatus
from dra_driver.model.record import Record

BROKEN_STATE: Final = "broken-state"
"""Cause: a process on the GPU lost its CUDA state, and runs."""

_MESSAGE_MAX = 1024

_Held = dict[tuple[str, str], Record]


def processes_left_broken(operations: Iterable[Operation]) -> tuple[ProcessRef, ...]:
    """Processes of containers whose GPU state is broken, whether they still run or not; sorted."""
    found = {each for operation in filter(_is_broken, operations) for each in _processes(operation)}
    return tuple(sorted(found, key=lambda each: (each.pid, each.started)))


def broken_gpus(
    operations: Iterable[Operation], records: Iterable[Record], *, ended: frozenset[ProcessRef]
) -> tuple[DeviceHealth, ...]:
    """Give the GPUs on which containers run on with broken state, by UUID; the first one tells.

    Args as of `left_broken`.
    """
    held = _held(records)
    found: dict[str, DeviceHealth] = {}
    for operation in left_broken(operations, held.values(), ended=ended):
        for record in _records(operation, held):
            for gpu in record.gpus:
                found.setdefault(gpu, _health(gpu, operation))
    return tuple(found[gpu] for gpu in sorted(found))


def left_broken(
    operations: Iterable[Operation], records: Iterable[Record], *, ended: frozenset[ProcessRef]
) -> tuple[Operation, ...]:
    """Give those whose containers run on with broken state, in their order.

    That is over when the claim is unprepared, with the boot, when a person has acknowledged it, or
    when all processes that are known of the container have ended: what comes after them begins
    anew.

    Args:
        operations: in the order in which they began.
        records: of all claims.
        ended: those of `processes_left_broken` that run no more.
    """
    held = _held(records)
    return tuple(
        operation
        for operation in filter(_is_broken, operations)
        if _records(operation, held) and not _has_ended(operation, ended)
    )


def with_broken(inventory: Inventory | None, broken: tuple[DeviceHealth, ...]) -> Inventory | None:
    """Put this over the health of GPUs that are known, where nothing else is wrong with them."""
    if inventory is None:
        return None
    health = {each.uuid: each for each in inventory.health}
    known = {gpu.uuid for gpu in inventory.gpus}
    for each in broken:
        before = health.get(each.uuid)
        ails = before is not None and before.status is HealthStatus.UNHEALTHY
        if each.uuid in known and not ails:
            health[each.uuid] = each
    return replace(inventory, health=tuple(health[uuid] for uuid in sorted(health)))


def _is_broken(operation: Operation) -> bool:
    # Without an owner of the GPU's side nothing was done to it.
    unhealthy = operation.state is OperationState.FAILED_UNHEALTHY
    done_to = operation.owner is not GpuOwner.NONE
    return unhealthy and done_to and not operation.acknowledged


def _held(records: Iterable[Record]) -> _Held:
    return {(record.claim.uid, record.boot_id): record for record in records}


def _records(operation: Operation, held: _Held) -> tuple[Record, ...]:
    found = (held.get((claim.uid, operation.boot_id)) for claim in operation.claims)
    return tuple(record for record in found if record is not None)


def _has_ended(operation: Operation, ended: frozenset[ProcessRef]) -> bool:
    processes = _processes(operation)
    return bool(processes) and ended.issuperset(processes)


def _processes(operation: Operation) -> frozenset[ProcessRef]:
    return frozenset(_known(operation))


def _known(operation: Operation) -> Iterator[ProcessRef]:
    if operation.target.init is not None:
        yield operation.target.init
    for held in operation.processes:
        yield held.process


def _health(gpu: str, operation: Operation) -> DeviceHealth:
    text = (
        f"{operation.kind} {operation.id} left {_named(operation.target)} with broken GPU state:"
        f" {operation.text}; delete its pod"
    )
    return DeviceHealth(
        uuid=gpu,
        status=HealthStatus.UNHEALTHY,
        message=" ".join(text.split())[:_MESSAGE_MAX],
        cause=BROKEN_STATE,
    )


def _named(target: Target) -> str:
    name = target.container_name or target.container_id[:12]
    pod = f" of pod {target.pod_namespace}/{target.pod_name}" if target.pod_name else ""
    return f"container {name}{pod}" if name else "a container"
