"""Steps: the reversible effects that a plan is made of, as data.

A step is journalled before it runs; undoing is the same tuple backwards. Adding a kind means one
class here, one arm in `state.executor` and one in `state.codec`; `node_state` never changes for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.model.device import GpuUuid
from dra_driver.model.share import GpuShare, TimeSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureShare:
    """One tenant's share of one GPU exists and is enforced. Undo: it does not exist."""

    share: GpuShare


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimeSlice:
    """A whole GPU has this time-slice interval. Undo: the default one."""

    gpu: GpuUuid
    interval: TimeSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCdiSpec:
    """The claim's CDI spec stands in the CDI folder. Undo: it does not.

    Attributes:
        name: file name without its ending; holds the claim's UID, so it is never reused.
        content: the spec as canonical JSON text (sorted keys), so that equal specs are equal bytes.
    """

    name: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkClaim:
    """The file stands that marks containers of the claim. Undo: it does not."""

    claim_uid: str


Step = EnsureShare | SetTimeSlice | MarkClaim | WriteCdiSpec


def needs_intent(step: Step) -> bool:
    """Whether the step must be journalled before it runs.

    A CDI spec and a mark are found again by their names after a crash, so a plan of only those
    saves one durable write; every other effect would be forgotten.
    """
    return not isinstance(step, WriteCdiSpec | MarkClaim)
