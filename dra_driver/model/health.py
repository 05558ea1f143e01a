"""Health of GPUs, as the kubelet's health service and taints need it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HealthStatus(StrEnum):
    """UNKNOWN is not unhealthy: nothing is tainted for it."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """Health of one GPU.

    Attributes:
        uuid: of the GPU.
        message: for people, at most 1024 characters (the kubelet cuts longer ones).
        cause: short machine-readable cause, legal as a label value ("xid-79", "lost"); empty when
            healthy.
    """

    uuid: str
    status: HealthStatus
    message: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvent:
    """One event that the GPU driver reported.

    Attributes:
        uuid: of the GPU; empty where the driver named one that is not known.
        xid: NVIDIA's error number.
    """

    uuid: str
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HealthRow:
    """Health of one published device, as the kubelet is told."""

    pool: str
    device: str
    status: HealthStatus
    message: str = ""
