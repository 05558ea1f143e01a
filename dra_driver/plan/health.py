"""Health of GPUs: what events and failed reads mean for the devices that are published."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from dra_driver.model.device import GpuFacts, GpuUuid, Inventory, UnreadableGpu
from dra_driver.model.health import DeviceHealth, GpuEvent, HealthRow, HealthStatus
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.pool import Device, Pool

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors that a program causes, not the board; the same set that NVIDIA's DRA driver skips."""

LOST = "lost"
NOT_LOADED = "driver-not-loaded"
MPS_FAULT = "mps-fault"
"""Of a fault and of the start after it alike: a change of cause would rewrite the taint."""

_MESSAGE_MAX = 1024
_XID_CAUSE = "xid-"


@dataclass(frozen=True, slots=True, kw_only=True)
class XidPolicy:
    """Which XIDs leave a GPU healthy.

    Attributes:
        ignored: application errors, and what an administrator added.
    """

    ignored: frozenset[int] = APPLICATION_XIDS

    @classmethod
    def with_ignored(cls, xids: Iterable[int]) -> XidPolicy:
        """Give the default policy with more XIDs to ignore."""
        return cls(ignored=APPLICATION_XIDS | frozenset(xids))


def fold(inventory: Inventory, events: tuple[GpuEvent, ...], policy: XidPolicy) -> Inventory:
    """Mark the GPUs that events speak of.

    The first cause stays: a board that fails once reports many XIDs, and each change of cause would
    rewrite its taint. An event of a GPU that is not in `inventory` changes nothing.
    """
    health = {each.uuid: each for each in inventory.health}
    for event in events:
        if event.xid in policy.ignored or inventory.gpu(GpuUuid(event.uuid)) is None:
            continue
        known = health.get(event.uuid)
        if known is None or known.status is not HealthStatus.UNHEALTHY:
            health[event.uuid] = _xid_health(event)
    return replace(inventory, health=_sorted(health.values()))


def merge(
    previous: Inventory | None, read: Inventory, *, held: frozenset[GpuUuid] | None = None
) -> Inventory:
    """Put what was known of GPUs beside what was read just now.

    A GPU that was known and cannot be read now stays, unhealthy ("lost"): claims may hold it, and a
    device that vanishes confuses them. One that is not even enumerated any more stays only while it
    is held. A lost GPU is healthy again when it can be read again. An XID stays until then: only
    a reset mends such a board, and a reset loses it first.

    While a GPU is missing, the others keep their NVLink domain, whose name depends on all of them.

    Args:
        previous: what the last call gave.
        read: what the library says now.
        held: GPUs that claims hold; None: not known, so every GPU counts as held.
    """
    if previous is None:
        return read
    kept, unreadable = _kept(previous, read, held)
    health = {each.uuid: each for each in read.health}
    health |= {
        each.uuid: each
        for each in previous.health
        if each.cause.startswith(_XID_CAUSE) and read.gpu(GpuUuid(each.uuid)) is not None
    }
    health |= {gpu.uuid: _lost_health(gpu, text) for gpu, text in kept}
    gpus = (*_with_domains(read.gpus, previous if kept else read), *(gpu for gpu, _ in kept))
    return replace(
        read,
        gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))),
        unreadable=unreadable,
        health=_sorted(health.values()),
    )


def without_driver(inventory: Inventory, text: str) -> Inventory:
    """Keep all GPUs while the driver is away, unhealthy: an empty pool would say they are gone."""
    return replace(
        inventory,
        health=_sorted(
            DeviceHealth(
                uuid=gpu.uuid,
                status=HealthStatus.UNHEALTHY,
                message=_cut(text),
                cause=NOT_LOADED,
            )
            for gpu in inventory.gpus
        ),
    )


def with_sharing(inventory: Inventory | None, states: tuple[GpuSharing, ...]) -> Inventory | None:
    """Put over the health of GPUs how their sharing is.

    A GPU whose shares cannot be enforced, or whose daemon is being started again after a loss, is
    unhealthy until it is ACTIVE: who comes next would meet errors. Not so at a first start, for
    which prepares wait, nor where the board itself is unhealthy, which says more.
    """
    if inventory is None:
        return None
    health = {each.uuid: each for each in inventory.health}
    for state in states:
        known = health.get(state.gpu)
        board_fails = known is not None and known.status is HealthStatus.UNHEALTHY
        if _is_broken(state) and not board_fails and inventory.gpu(state.gpu) is not None:
            health[state.gpu] = _sharing_health(state)
    return replace(inventory, health=_sorted(health.values()))


def health_rows(pool: Pool, inventory: Inventory) -> tuple[HealthRow, ...]:
    """Give the health of each published device by its `uuid` attribute, sorted; pads have none."""
    health = {each.uuid: each for each in inventory.health}
    rows = []
    for device in pool.devices:
        attributes = dict(device.attributes)
        uuid = attributes.get("uuid")
        if attributes.get("type") == "pad" or not isinstance(uuid, str):
            continue
        rows.append(_row(pool, device, health.get(uuid)))
    return tuple(sorted(rows))


def _row(pool: Pool, device: Device, health: DeviceHealth | None) -> HealthRow:
    if health is None:
        return HealthRow(
            pool=pool.name,
            device=device.name,
            status=HealthStatus.UNKNOWN,
            message="this GPU's health is not known",
        )
    return HealthRow(
        pool=pool.name,
        device=device.name,
        status=health.status,
        message=_cut(health.message),
    )


def _kept(
    previous: Inventory, read: Inventory, held: frozenset[GpuUuid] | None
) -> tuple[list[tuple[GpuFacts, str]], tuple[UnreadableGpu, ...]]:
    """Give known GPUs that are missing now, each with the reason, and the reasons left over."""
    kept = []
    reasons = {each.label: each for each in read.unreadable}
    for gpu in previous.gpus:
        if read.gpu(gpu.uuid) is not None:
            continue
        labels = (gpu.uuid, f"index {gpu.index}", f"PCI {gpu.pci_bus_id}")
        reason = next((reasons.pop(label) for label in labels if label in reasons), None)
        if reason is not None:
            kept.append((gpu, reason.text))
        elif held is None or gpu.uuid in held:
            kept.append((gpu, "the driver does not list this GPU any more; reset or replace it"))
    return kept, tuple(sorted(reasons.values(), key=lambda each: each.label))


def _with_domains(gpus: tuple[GpuFacts, ...], source: Inventory) -> Iterable[GpuFacts]:
    for gpu in gpus:
        known = source.gpu(gpu.uuid)
        yield gpu if known is None else replace(gpu, nvlink_domain=known.nvlink_domain)


def _xid_health(event: GpuEvent) -> DeviceHealth:
    return DeviceHealth(
        uuid=event.uuid,
        status=HealthStatus.UNHEALTHY,
        message=(
            f"The GPU driver reported XID {event.xid}: see NVIDIA's XID catalog, "
            "then reset or replace the GPU"
        ),
        cause=f"{_XID_CAUSE}{event.xid}",
    )


def _is_broken(state: GpuSharing) -> bool:
    match state.phase:
        case MpsPhase.FAULT:
            return bool(state.shares)
        case MpsPhase.STARTING:
            return bool(state.shares) and state.restarts > 0
        case MpsPhase.FREE | MpsPhase.ACTIVE | MpsPhase.DRAINING:
            return False
        case _ as never:
            assert_never(never)


def _sharing_health(state: GpuSharing) -> DeviceHealth:
    why = state.message or "its MPS server is started again after it ended"
    return DeviceHealth(
        uuid=state.gpu,
        status=HealthStatus.UNHEALTHY,
        message=_cut(f"Shares of this GPU are not enforced now: {why}"),
        cause=MPS_FAULT,
    )


def _lost_health(gpu: GpuFacts, text: str) -> DeviceHealth:
    return DeviceHealth(
        uuid=gpu.uuid, status=HealthStatus.UNHEALTHY, message=_cut(text), cause=LOST
    )


def _cut(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:_MESSAGE_MAX]


def _sorted(health: Iterable[DeviceHealth]) -> tuple[DeviceHealth, ...]:
    return tuple(sorted(health, key=lambda each: each.uuid))
