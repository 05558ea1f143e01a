"""Devices of one GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dra_driver.model.device import GpuFacts
from dra_driver.model.health import DeviceHealth
from dra_driver.model.pool import Capacity, Device, RequestPolicy, Taint, TaintEffect
from dra_driver.model.quantity import MIB
from dra_driver.model.share import ShareAbility
from dra_driver.plan.amounts import (
    COMPUTE_WHOLE_PERCENT,
    MEMORY_MINIMUM_MIB,
    SHARES_PER_GPU,
    slot_memory_mib,
    usable_memory_mib,
)
from dra_driver.plan.attributes import (
    EXCLUSIVE,
    SHARED,
    TYPE_GPU,
    TYPE_MONITOR,
    TYPE_SLOT,
    Attributes,
    pad_attributes,
    typed,
)
from dra_driver.plan.layouts import Layout
from dra_driver.plan.naming import PAD_COUNT, gpu_device, monitor_device, pad_device, slot_device

COMPUTE = "compute"
MEMORY = "memory"
SHARES = "shares"

Capacities = tuple[tuple[str, Capacity], ...]
Ranked = list[tuple[int, Device]]
"""Devices with their rank: lower ones are offered first, slots by their percentage."""

UNHEALTHY_TAINT = "unhealthy"

_RANK_SHAREABLE = 0
_RANK_WHOLE = COMPUTE_WHOLE_PERCENT + 1
_RANK_MONITOR = _RANK_WHOLE + 1
_LABEL_VALUE_MAX = 63
_NOT_LABEL_VALUE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuOffer:
    """A GPU and how it is to be offered.

    Attributes:
        attributes: of all its devices.
        shares: as one shareable device, if the GPU can be shared.
        layout: otherwise: as these slots, if the GPU can be shared.
    """

    gpu: GpuFacts
    ability: ShareAbility | None
    attributes: Attributes
    shares: bool
    layout: Layout


def gpu_devices(offer: GpuOffer) -> tuple[Ranked, str]:
    """Give all devices of a GPU, and a note where it is not offered as it was to be."""
    usable_mib = usable_memory_mib(offer.gpu)
    obstacle = _obstacle(offer.ability, usable_mib) if offer.shares or offer.layout.groups else ""
    note = f"{offer.gpu.uuid}: offered whole: {obstacle}" if obstacle else ""
    if usable_mib is None or obstacle or not (offer.shares or offer.layout.groups):
        devices, sharing = [(_RANK_WHOLE, _whole(offer, usable_mib))], EXCLUSIVE
    elif offer.shares:
        devices, sharing = [(_RANK_SHAREABLE, _shareable(offer, usable_mib))], SHARED
    else:
        devices, sharing = _slots(offer, usable_mib), SHARED
    return [*devices, (_RANK_MONITOR, _monitor(offer, sharing))], note


def unhealthy_taint(device: Device, health: DeviceHealth, *, driver: str) -> Device:
    """Keep new claims away from a device of an unhealthy GPU; monitors stay as they are.

    NoSchedule, as pods that run must not be evicted for it: Kubernetes 1.34 cannot tolerate.
    """
    if dict(device.attributes).get("type") == TYPE_MONITOR:
        return device
    taint = Taint(
        key=f"{driver}/{UNHEALTHY_TAINT}",
        value=_label_value(health.cause),
        effect=TaintEffect.NO_SCHEDULE,
    )
    return replace(device, taints=(taint,))


def pads(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Devices that stand before all others on Kubernetes 1.34 and that no claim may hold.

    Its scheduler checks the n-th device of a request against the capacity of the n-th device of the
    ResourceSlice. A pad has at least as much of everything as any device of the node, and it is not
    shareable, so the check passes and what really counts is counted elsewhere.
    """
    largest: dict[str, int] = {}
    for name, capacity in (item for device in devices for item in device.capacity):
        largest[name] = max(capacity.value, largest.get(name, 0))
    capacities = tuple((name, Capacity(value=value)) for name, value in sorted(largest.items()))
    others = tuple(device.attributes for device in devices)
    return tuple(
        Device(name=name, attributes=pad_attributes(name, others), capacity=capacities)
        for name in (pad_device(number) for number in range(PAD_COUNT))
    )


def _obstacle(ability: ShareAbility | None, usable_mib: int | None) -> str:
    if ability is None:
        return "nothing is known about sharing it"
    if ability.tier is None:
        return ability.reason or "it cannot be shared now"
    if usable_mib is None:
        return "its memory is not known"
    # A request policy needs room for at least one step above the minimum.
    if usable_mib <= MEMORY_MINIMUM_MIB:
        return f"{usable_mib} MiB of usable memory are too little to share"
    return ""


def _shareable(offer: GpuOffer, usable_mib: int) -> Device:
    memory_bytes = usable_mib * MIB
    memory = RequestPolicy(
        default=memory_bytes, minimum=MEMORY_MINIMUM_MIB * MIB, maximum=memory_bytes, step=MIB
    )
    return Device(
        name=gpu_device(offer.gpu.uuid),
        attributes=typed(offer.attributes, kind=TYPE_GPU, sharing=SHARED),
        capacity=(
            (COMPUTE, _counted(COMPUTE_WHOLE_PERCENT)),
            (MEMORY, Capacity(value=memory_bytes, policy=memory)),
            (SHARES, _counted(SHARES_PER_GPU)),
        ),
        shareable=True,
    )


def _counted(value: int) -> Capacity:
    return Capacity(value=value, policy=RequestPolicy(default=1, minimum=1, maximum=value, step=1))


def _whole(offer: GpuOffer, usable_mib: int | None) -> Device:
    return Device(
        name=gpu_device(offer.gpu.uuid),
        attributes=typed(offer.attributes, kind=TYPE_GPU, sharing=EXCLUSIVE),
        capacity=_fixed(COMPUTE_WHOLE_PERCENT, usable_mib, shares=1),
    )


def _slots(offer: GpuOffer, usable_mib: int) -> Ranked:
    return [
        (
            group.compute_percent,
            Device(
                name=slot_device(
                    offer.gpu.uuid, compute_percent=group.compute_percent, number=number
                ),
                attributes=typed(offer.attributes, kind=TYPE_SLOT, sharing=SHARED),
                capacity=_fixed(
                    group.compute_percent,
                    slot_memory_mib(usable_mib, group.compute_percent),
                    shares=1,
                ),
            ),
        )
        for group in offer.layout.groups
        for number in range(group.count)
    ]


def _monitor(offer: GpuOffer, sharing: str) -> Device:
    # It has none of anything: a claim with numbers, or a selector on capacity, never meets it.
    return Device(
        name=monitor_device(offer.gpu.uuid),
        attributes=typed(offer.attributes, kind=TYPE_MONITOR, sharing=sharing),
        capacity=_fixed(0, 0, shares=0),
    )


def _fixed(compute_percent: int, memory_mib: int | None, *, shares: int) -> Capacities:
    memory = () if memory_mib is None else ((MEMORY, Capacity(value=memory_mib * MIB)),)
    return (
        (COMPUTE, Capacity(value=compute_percent)),
        *memory,
        (SHARES, Capacity(value=shares)),
    )


def _label_value(cause: str) -> str:
    return _NOT_LABEL_VALUE.sub("-", cause)[:_LABEL_VALUE_MAX].strip("-_.") or "unknown"
