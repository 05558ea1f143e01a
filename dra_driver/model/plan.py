"""What preparing a claim would do, as data."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.model.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparePlan:
    """A decision about one claim.

    Attributes:
        record: RESERVED; its steps, run in order, prepare the claim; its devices are the answer.
        warnings: told to the user by an Event; nothing fails for them.
        notes: why each device is prepared as it is, one sentence each, in allocation order; for
            `gpuslice explain`.
    """

    record: Record
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
