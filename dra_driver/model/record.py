"""The plugin's own record of a claim on this node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.share import CheckpointPolicy
from dra_driver.model.steps import Step


class RecordState(StrEnum):
    """RESERVED: steps may have run in part. PREPARED: all ran, the answer is final."""

    RESERVED = "Reserved"
    PREPARED = "Prepared"


class Use(StrEnum):
    """How a claim uses a GPU; decides which claims may stand beside each other."""

    EXCLUSIVE = "Exclusive"
    SHARED = "Shared"
    SLOT = "Slot"
    MONITOR = "Monitor"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device of the answer to the kubelet.

    Attributes:
        requests: main request names, sorted.
        cdi_ids: fully qualified, the one that is unique per device first.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """What a claim holds of one GPU, for the overlap guard.

    Attributes:
        device: the published device's name.
        share_id: identity of a share of a shareable device.
        compute_percent, memory_mib: what it holds; a whole GPU holds 100 and its usable memory.
        setting: GPU-wide setting that every claim beside it must agree with ("MPS", "TimeSlicing",
            "TimeSlicing=Long", "TimeSlice=Long" of a whole GPU); empty where it does not care. What
            stands before "=" must be the same, what stands behind it where both say it.
    """

    gpu: GpuUuid
    use: Use
    device: str
    share_id: str | None = None
    compute_percent: int = 100
    memory_mib: int = 0
    setting: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A claim's entry in the journal.

    Attributes:
        boot_id: of the boot in which the steps ran. A record of another boot holds nothing: it
            neither blocks a device nor counts as a share until its claim is prepared again.
        uses: one for each of `devices`, in the same order, which is the allocation's.
        steps: in the order in which they run.
        devices: the answer, byte-equal at every repeat; final already when reserved.
        pods: that the claim was reserved for when it was planned, sorted.
        checkpoint: of all its devices, the one that allows least.
        restore_from: the checkpoint operation that its containers are restored from.
    """

    claim: ClaimRef
    state: RecordState
    boot_id: str
    uses: tuple[GpuUse, ...]
    steps: tuple[Step, ...]
    devices: tuple[PreparedDevice, ...]
    pods: tuple[PodRef, ...] = ()
    checkpoint: CheckpointPolicy = CheckpointPolicy.NONE
    restore_from: str | None = None

    @property
    def gpus(self) -> tuple[GpuUuid, ...]:
        return tuple(sorted({use.gpu for use in self.uses}))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerRecord:
    """A record that a newer release wrote: left alone, and what it holds respected.

    Attributes:
        text: where it stands, what was not understood, and what to do.
        held: as much as was understood: whose it is, of which boot, its uses and its shares. None:
            what it holds cannot be told.
    """

    text: str
    held: Record | None
