"""What preparing a claim would do, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparePlan:
    """A decision about one claim.

    Attributes:
        record: RESERVED; its steps, run in order, prepare the claim; its devices are the answer.
        warnings: told to the user by an Event; nothing fails for them.
        notes: why each device is prepared as it is, one sentence each, in allocation order; for
            `gpuslice explain`.
        usable_mib: memory that all claims of a GPU can hold together, for the GPUs of the record
            whose memory is known; for the overlap guard.
    """

    record: Record
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    usable_mib: Mapping[GpuUuid, int] = field(default_factory=dict)
