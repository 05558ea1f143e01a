"""Names: one home for every name that this driver gives to something outside the process.

A device's name is a function of its GPU's UUID alone: index and minor change across reboots, and a
name in an allocation must go on meaning the same board.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

from dra_driver.model.device import GpuUuid

PAD_COUNT = 32
"""Results per request are limited to 32 (resource.k8s.io), so no index reaches behind the pads."""

_LABEL_MAX = 63
_UNSAFE = re.compile(r"[^a-z0-9]+")
_LONGEST_SUFFIX = len("-slot-100-00")


@lru_cache(maxsize=1024)
def gpu_device(uuid: GpuUuid) -> str:
    """Name of the device that stands for a GPU, whole or shareable: "gpu-6f0e…"."""
    stem = _UNSAFE.sub("-", uuid.lower()).strip("-").removeprefix("gpu-")
    readable = f"gpu-{stem}"
    if stem and len(readable) + _LONGEST_SUFFIX <= _LABEL_MAX and _reversible(uuid, stem):
        return readable
    return f"gpu-{sha256(uuid.encode()).hexdigest()[:32]}"


def readable_uuid(device: str) -> GpuUuid:
    """The UUID that a device's name shows; of no GPU where the name shows none."""
    stem = device.partition("-slot-")[0].removesuffix("-monitor")
    return GpuUuid(f"GPU-{stem.removeprefix('gpu-')}")


def slot_device(uuid: GpuUuid, *, compute_percent: int, number: int) -> str:
    """Name of the number-th slot of a size on a GPU in a static layout."""
    return f"{gpu_device(uuid)}-slot-{compute_percent}-{number}"


def monitor_device(uuid: GpuUuid) -> str:
    return f"{gpu_device(uuid)}-monitor"


def pad_device(number: int) -> str:
    return f"pad-{number:02d}"


def spec_name(driver: str, claim_uid: str) -> str:
    """File name, without its ending, of a claim's CDI spec; unique for ever, as UIDs are."""
    return f"{spec_prefix(driver)}{claim_uid}"


def spec_prefix(driver: str) -> str:
    """What all spec file names of this driver start with."""
    return f"{driver}-claim_"


def cdi_kind(driver: str) -> str:
    return f"{driver}/claim"


def _reversible(uuid: GpuUuid, stem: str) -> bool:
    # Two UUIDs must never meet in one name, so only the spelling that NVML uses stays readable.
    return uuid == f"GPU-{stem}"
