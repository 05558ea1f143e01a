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


def processes_left_broken(operations: Iterable[Operation]) -> tuple[ProcessRef, ...]:
    """Processes of containers whose GPU state is broken, whether they still run or not; sorted."""
    found = {each for operation in filter(_is_broken, operations) for each in _processes(operation)}
    return tuple(sorted(found, key=lambda each: (each.pid, each.started)))


def broken_gpus(
    operations: Iterable[Operation], records: Iterable[Record], *, ended: frozenset[ProcessRef]
) -> tuple[DeviceHealth, ...]:
    """Give the GPUs on which containers run on with broken state, by UUID; the first one tells.

    That is over when the claim is unprepared, with the boot, or when all processes that are known
    of the container have ended: what comes after them begins anew.

    Args:
        operations: in the order in which they began.
        records: of all claims.
        ended: those of `processes_left_broken` that run no more.
    """
    held = {(record.claim.uid, record.boot_id): record for record in records}
    found: dict[str, DeviceHealth] = {}
    for operation in filter(_is_broken, operations):
        processes = _processes(operation)
        if processes and ended.issuperset(processes):
            continue
        for claim in operation.claims:
            record = held.get((claim.uid, operation.boot_id))
            for gpu in record.gpus if record is not None else ():
                found.setdefault(gpu, _health(gpu, operation))
    return tuple(found[gpu] for gpu in sorted(found))


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
    return unhealthy and operation.owner is not GpuOwner.NONE


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
