"""A share: one tenant's part of one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dra_driver.model.device import GpuUuid, Tier


class Sharing(StrEnum):
    """How several tenants use one GPU."""

    MPS = "MPS"
    TIME_SLICING = "TimeSlicing"


class Qos(StrEnum):
    """What a share may use beyond what it asked for."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class OnExceed(StrEnum):
    """What the watchdog does with a share above its memory."""

    WARN = "Warn"
    TERMINATE = "Terminate"


class Expose(StrEnum):
    """What a container sees of its GPU's MPS daemon.

    CONTROL: the socket that clients connect through, alone. FOLDER: all sockets, by which root in a
    container can change limits.
    """

    CONTROL = "control"
    FOLDER = "folder"


class CheckpointPolicy(StrEnum):
    """Whether a claim's containers can be checkpointed."""

    NONE = "None"
    BEST_EFFORT = "BestEffort"
    REQUIRED = "Required"


class TimeSlice(StrEnum):
    """Time-slice intervals of a whole GPU, as nvidia-smi names them."""

    DEFAULT = "Default"
    SHORT = "Short"
    MEDIUM = "Medium"
    LONG = "Long"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShare:
    """What the sharing supervisor enforces for one tenant of one GPU.

    Attributes:
        id: unique on the node and stable for the claim's life.
        compute_percent: 1 to 100; the ceiling of active threads.
        memory_mib: the ceiling of device memory.
        priority: 0 normal, 1 below normal (MPS client priority).
        expose: of MPS; nothing else is exposed.
    """

    id: str
    gpu: GpuUuid
    sharing: Sharing
    compute_percent: int
    memory_mib: int
    priority: int = 0
    qos: Qos = Qos.GUARANTEED
    on_exceed: OnExceed = OnExceed.WARN
    expose: Expose = Expose.CONTROL


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareAbility:
    """What sharing of one GPU can promise now.

    Attributes:
        tier: None: the GPU cannot be shared by this driver now; it is offered whole.
        burst_allowed: shares may use more compute than they asked for.
        mps_multi_user: pods of several UIDs can share it.
        expose: what its containers get to see of MPS.
        reason: why the tier is not stronger; for people.
    """

    gpu: GpuUuid
    tier: Tier | None
    burst_allowed: bool = True
    mps_multi_user: bool = False
    expose: Expose = Expose.CONTROL
    reason: str = ""
