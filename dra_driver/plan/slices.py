"""What a node offers: an inventory becomes a pool of devices.

First-fit in list order is the scheduler's only choice between devices, so the order packs: shares
and the smallest slots first, whole GPUs after them, monitors last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuFacts, GpuUuid, Inventory
from dra_driver.model.health import DeviceHealth, HealthStatus
from dra_driver.model.pool import Device, Pool
from dra_driver.model.share import ShareAbility
from dra_driver.plan.attributes import gpu_attributes
from dra_driver.plan.devices import GpuOffer, gpu_devices, pads, unhealthy_taint
from dra_driver.plan.layouts import WHOLE, Layout, Layouts
from dra_driver.plan.naming import PAD_COUNT

SLICE_DEVICES = 64
"""Devices per ResourceSlice wherever one of them may get a taint (resource.k8s.io, from 1.35)."""
PADDED_SLICE_DEVICES = 128
"""Devices in the one ResourceSlice of a pool with pads (resource.k8s.io, 1.34)."""


class PublishMode(StrEnum):
    """CONSUMABLE: one shareable device per GPU. STATIC: whole GPUs or fixed slots."""

    AUTO = "auto"
    CONSUMABLE = "consumable"
    STATIC = "static"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """How to publish.

    Attributes:
        driver: driver name, also the domain of attributes and capacities.
        node: name of the node, also of the pool.
        layouts: of GPUs in static mode.
        checkpointable: containers on these GPUs can be checkpointed.
    """

    driver: str
    node: str
    mode: PublishMode = PublishMode.AUTO
    layouts: Layouts = field(default_factory=Layouts)
    checkpointable: bool = False


def build_pool(
    inventory: Inventory,
    abilities: tuple[ShareAbility, ...],
    *,
    capability: ApiCapability,
    options: PublishOptions,
    in_use: frozenset[str],
    held_whole: frozenset[GpuUuid] = frozenset(),
) -> Pool:
    """Give all devices of the node, in the order in which they are offered.

    A GPU that cannot be shared now (no tier, no known memory, too little of it) is offered whole.
    Boards in MIG mode and unreadable ones are left out. An unhealthy GPU's devices get a taint;
    where the server drops taints they are left out, except those in use, whose allocation the
    scheduler would otherwise forget. A monitor gets no taint: a sick GPU is what it is for.

    Args:
        inventory: of the node.
        abilities: of its GPUs, in any order; a GPU without one is offered whole.
        capability: what the API server keeps.
        options: how to publish.
        in_use: names of devices that prepared claims hold.
        held_whole: GPUs that claims hold as exclusive devices, see `plan.held`: they stay such.
    """
    mode, notes = _mode(capability, options)
    pool = _Build(inventory=inventory, abilities=abilities, options=options, held_whole=held_whole)
    built = pool.devices(mode, capability, in_use)
    if mode is PublishMode.CONSUMABLE and capability.needs_pads and not _fits_padded(built.devices):
        notes.append(
            f"{len(built.devices)} devices do not fit into the one ResourceSlice that Kubernetes "
            "1.34 needs for shares: GPUs are offered in static mode"
        )
        built = pool.devices(PublishMode.STATIC, capability, in_use)
    return Pool(
        driver=options.driver,
        name=options.node,
        slices=_slices(built.devices, padded=capability.needs_pads),
        notes=tuple(sorted({*notes, *built.notes})),
    )


def _mode(capability: ApiCapability, options: PublishOptions) -> tuple[PublishMode, list[str]]:
    match options.mode:
        case PublishMode.STATIC:
            return PublishMode.STATIC, []
        case PublishMode.CONSUMABLE if not capability.consumable:
            note = (
                f"the API server ({capability.git_version}) drops allowMultipleAllocations: GPUs "
                "are offered in static mode; switch on its feature gate DRAConsumableCapacity"
            )
            return PublishMode.STATIC, [note]
        case _:
            consumable = capability.consumable
            return (PublishMode.CONSUMABLE if consumable else PublishMode.STATIC), []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    devices: tuple[Device, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Build:
    inventory: Inventory
    abilities: tuple[ShareAbility, ...]
    options: PublishOptions
    held_whole: frozenset[GpuUuid]

    def devices(
        self, mode: PublishMode, capability: ApiCapability, in_use: frozenset[str]
    ) -> _Built:
        notes = [f"{gpu.label}: left out: {gpu.text}" for gpu in self.inventory.unreadable]
        if mode is PublishMode.STATIC:
            notes.extend(
                f"the static layout names {selector}, which is no GPU of this node"
                for selector in self.options.layouts.unmatched(self.inventory.gpus)
            )
        health = {entry.uuid: entry for entry in self.inventory.health}
        offered: list[tuple[tuple[int, ...], Device]] = []
        for position, gpu in enumerate(sorted(self.inventory.gpus, key=_by_index)):
            if gpu.mig_enabled:
                notes.append(f"{gpu.uuid}: left out: MIG mode is on, which is not supported yet")
                continue
            ranked = _with_health(
                self._offer(gpu, mode),
                health.get(gpu.uuid),
                capability,
                driver=self.options.driver,
                in_use=in_use,
                notes=notes,
            )
            offered.extend(((rank, position), device) for rank, device in ranked)
        # Stable: slots of one size and GPU stay in the order of their numbers.
        offered.sort(key=lambda item: item[0])
        return _Built(devices=tuple(device for _, device in offered), notes=tuple(notes))

    def _offer(self, gpu: GpuFacts, mode: PublishMode) -> GpuOffer:
        ability = {each.gpu: each for each in self.abilities}.get(gpu.uuid)
        return GpuOffer(
            gpu=gpu,
            ability=ability,
            attributes=gpu_attributes(
                gpu,
                ability,
                inventory=self.inventory,
                checkpointable=self.options.checkpointable,
            ),
            shares=mode is PublishMode.CONSUMABLE and gpu.uuid not in self.held_whole,
            layout=self._layout(gpu, mode),
        )

    def _layout(self, gpu: GpuFacts, mode: PublishMode) -> Layout:
        split = mode is PublishMode.STATIC and gpu.uuid not in self.held_whole
        return self.options.layouts.of(gpu) if split else WHOLE


def _with_health(
    offer: GpuOffer,
    health: DeviceHealth | None,
    capability: ApiCapability,
    *,
    driver: str,
    in_use: frozenset[str],
    notes: list[str],
) -> list[tuple[int, Device]]:
    ranked, note = gpu_devices(offer)
    if note:
        notes.append(note)
    if health is None or health.status is not HealthStatus.UNHEALTHY:
        return ranked
    if capability.taints:
        return [(rank, unhealthy_taint(device, health, driver=driver)) for rank, device in ranked]
    kept = [(rank, device) for rank, device in ranked if device.name in in_use]
    notes.append(
        f"{offer.gpu.uuid}: left out, apart from devices in use: unhealthy "
        f"({health.cause or 'no cause given'}) and the API server drops taints"
    )
    return kept


def _by_index(gpu: GpuFacts) -> tuple[int, str]:
    return gpu.index, gpu.uuid


def _fits_padded(devices: tuple[Device, ...]) -> bool:
    return len(devices) + PAD_COUNT <= PADDED_SLICE_DEVICES


def _slices(devices: tuple[Device, ...], *, padded: bool) -> tuple[tuple[Device, ...], ...]:
    if padded and devices and _fits_padded(devices):
        return ((*pads(devices), *devices),)
    # Chunks of equal size, as 1.34's scheduler dies of a claim that asks for more devices than a
    # ResourceSlice holds: 33 + 32 are safe for the 32 that a claim can ask for, 64 + 1 are not.
    chunks = max(1, -(-len(devices) // SLICE_DEVICES))
    size, longer = divmod(len(devices), chunks)
    bounds = [0]
    for number in range(chunks):
        bounds.append(bounds[-1] + size + (number < longer))
    return tuple(devices[start:end] for start, end in pairwise(bounds))
