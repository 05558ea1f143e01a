"""What a device name of an allocation means on this node.

Names are read by their meaning, not looked up in what is published now: a claim may have been
allocated while another layout was published.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dra_driver.errors import ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.device import GpuFacts, GpuUuid, Inventory
from dra_driver.plan import naming
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT

_SLOT = re.compile(r"(.+)-slot-([1-9]\d{0,2})-(0|[1-9]\d?)")
_PADS = frozenset(naming.pad_device(number) for number in range(naming.PAD_COUNT))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTarget:
    """A GPU, whole or one share of it: the allocation result says which."""

    gpu: GpuFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTarget:
    """A part of fixed size of a GPU; `number` counts the slots of that size from 0."""

    gpu: GpuFacts
    compute_percent: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorTarget:
    """The right to look at a GPU without holding any of it."""

    gpu: GpuFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class PadTarget:
    """A place holder that keeps a scheduler from a mistake; nobody can use it."""


Target = GpuTarget | SlotTarget | MonitorTarget | PadTarget


def resolve(device_name: str, inventory: Inventory) -> Target:
    """Tell which GPU a device name means, and which kind of device it is.

    Raises:
        NotReady: the GPU cannot be used now: it is in MIG mode, or GPUs are unreadable and it may
            be one of them, or none is found.
        ClaimRejected: no GPU of this node has such a device.
    """
    if device_name in _PADS:
        return PadTarget()
    for gpu in _candidates(device_name, inventory):
        target = _of_gpu(device_name, gpu)
        if target is not None:
            if gpu.mig_enabled:
                raise NotReady(
                    Reason.NOT_SUPPORTED,
                    f"device {device_name}: GPU {gpu.uuid} is in MIG mode, which is not supported: "
                    "switch it off (nvidia-smi -mig 0), or delete the pod and its claim",
                )
            return target
    raise _unknown(device_name, inventory)


def _candidates(device_name: str, inventory: Inventory) -> Iterator[GpuFacts]:
    """All GPUs, first the one that a readable name tells."""
    told = inventory.gpu(naming.readable_uuid(device_name))
    if told is not None:
        yield told
    yield from inventory.gpus


def _of_gpu(device_name: str, gpu: GpuFacts) -> Target | None:
    stem = naming.gpu_device(gpu.uuid)
    if not device_name.startswith(stem):
        return None
    if device_name == stem:
        return GpuTarget(gpu=gpu)
    if device_name == naming.monitor_device(gpu.uuid):
        return MonitorTarget(gpu=gpu)
    slot = _SLOT.fullmatch(device_name)
    if slot is None or slot[1] != stem:
        return None
    percent, number = int(slot[2]), int(slot[3])
    fits = (number + 1) * percent <= COMPUTE_WHOLE_PERCENT
    return SlotTarget(gpu=gpu, compute_percent=percent, number=number) if fits else None


def _unknown(device_name: str, inventory: Inventory) -> ClaimError:
    for unreadable in inventory.unreadable:
        if _of_gpu(device_name, _labelled(unreadable.label)) is not None:
            return NotReady(
                Reason.DEVICE_LOST,
                f"device {device_name}: its GPU {unreadable.label} cannot be read now: "
                f"{unreadable.text}",
            )
    if not (inventory.gpus or inventory.unreadable):
        return NotReady(
            Reason.DEVICE_LOST,
            f"device {device_name}: no GPU is found on this node now; it is tried again, and "
            "`gpuslice inventory` shows what the driver says",
        )
    nameless = [each for each in inventory.unreadable if not each.label.startswith("GPU-")]
    if nameless:
        reasons = "; ".join(f"{each.label}: {each.text}" for each in nameless)
        return NotReady(
            Reason.DEVICE_LOST,
            f"device {device_name} belongs to none of the GPUs that can be read now; it may be one "
            f"that cannot ({reasons})",
        )
    known = ", ".join(naming.gpu_device(gpu.uuid) for gpu in inventory.gpus) or "none"
    return ClaimRejected(
        Reason.UNKNOWN_DEVICE,
        f"device {device_name} does not exist on this node (its GPUs: {known}): delete the pod and "
        "its claim, so that they are scheduled anew",
    )


def _labelled(label: str) -> GpuFacts:
    return GpuFacts(uuid=GpuUuid(label), index=0, minor=0)
