"""What users and classes may ask of a device beyond its capacity, decoded.

The wire form and its rules are in `dra_api.config`. None means: not said, so the default holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dra_driver.model.device import Tier
from dra_driver.model.share import CheckpointPolicy, OnExceed, Qos, Sharing, TimeSlice


class NumaAffinity(StrEnum):
    """Whether a container is to run on the CPUs next to its GPU."""

    NONE = "None"
    PREFERRED = "Preferred"
    REQUIRED = "Required"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceConfig:
    """Settings of one share or slot of a GPU.

    Attributes:
        sharing: None: what the GPU does best.
        time_slice: interval of the whole GPU, only with TimeSlicing; None: it is left as it is.
        max_compute_percent, max_memory_mib: ceilings; they lower what the scheduler gave, and never
            raise it.
        qos: None: Guaranteed where compute was asked for, else Burstable.
        minimum_tier: weaker enforcement than this refuses the claim.
    """

    sharing: Sharing | None = None
    time_slice: TimeSlice | None = None
    max_compute_percent: int | None = None
    max_memory_mib: int | None = None
    qos: Qos | None = None
    minimum_tier: Tier | None = None
    on_exceed: OnExceed = OnExceed.WARN
    numa_affinity: NumaAffinity = NumaAffinity.NONE
    checkpoint: CheckpointPolicy = CheckpointPolicy.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuConfig:
    """Settings of a whole GPU.

    Attributes:
        time_slice: None: the interval is left as it is.
        restore_from: identity of the checkpoint operation to restore from.
    """

    time_slice: TimeSlice | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy.NONE
    restore_from: str | None = None


DeviceConfig = SliceConfig | GpuConfig
