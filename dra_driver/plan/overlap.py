"""The last guard against two claims on one part of a GPU.

The scheduler counts, but it may give a force-deleted pod's device to the next claim before the
node has let go of it, and counts of two publish modes do not know each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import GpuUse, Record, Use
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Why a claim cannot be prepared beside what others hold.

    Attributes:
        holder: the claim to wait for, or to name.
        text: what is in the way and what to do next; for the pod's Events.
        may_pass: the holder may let go soon; False where only another claim helps.
    """

    holder: ClaimRef
    text: str
    may_pass: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """Why two uses cannot stand beside each other, as the end of "… cannot …: "."""

    text: str
    may_pass: bool


def conflict(
    record: Record,
    others: Mapping[str, Record],
    boot_id: str,
    *,
    usable_mib: Mapping[GpuUuid, int] | None = None,
) -> Conflict | None:
    """Find what keeps `record` from being prepared; the claim itself among `others` is no holder.

    One that cannot pass is told first, as waiting for the others would be in vain; then the holder
    of the smallest UID.

    Args:
        record: what is to be prepared in this boot.
        others: records by claim UID.
        boot_id: of this boot; records of another one hold nothing.
        usable_mib: memory that claims of a GPU can hold together; a GPU without an entry is not
            checked for it.
    """
    holders = tuple(
        other
        for uid, other in sorted(others.items())
        if uid != record.claim.uid and other.boot_id == boot_id
    )
    if not holders:
        return None
    found = [
        *_clashes(record, holders),
        *_overfull(record, holders, usable_mib or {}),
    ]
    return min(found, key=lambda each: each.may_pass, default=None)


def clash(wanted: GpuUse, held: GpuUse) -> Clash | None:
    """Whether two uses exclude each other, whatever else there is on the GPU; symmetric."""
    if wanted.gpu != held.gpu or Use.MONITOR in (wanted.use, held.use):
        return None
    if Use.EXCLUSIVE in (wanted.use, held.use):
        return Clash(text="one of them needs the GPU for itself", may_pass=True)
    same_device = wanted.device == held.device
    if same_device and Use.SLOT in (wanted.use, held.use):
        return Clash(text="they are the same slot", may_pass=True)
    if same_device and wanted.share_id is not None and wanted.share_id == held.share_id:
        return Clash(text=f"they are the same share {wanted.share_id}", may_pass=True)
    if not _agree(wanted.setting, held.setting):
        return Clash(
            text=f"all claims on one GPU must agree, and these are {wanted.setting} and "
            f"{held.setting}",
            may_pass=False,
        )
    return None


def _agree(one: str, other: str) -> bool:
    """Whether two settings of a GPU can hold at once; what one does not say, the other decides."""
    kind, _, interval = one.partition("=")
    other_kind, _, other_interval = other.partition("=")
    if kind and other_kind and kind != other_kind:
        return False
    return not (interval and other_interval) or interval == other_interval


def _clashes(record: Record, holders: Iterable[Record]) -> Iterable[Conflict]:
    for other in holders:
        for wanted in record.uses:
            for held in other.uses:
                found = clash(wanted, held)
                if found is not None:
                    yield Conflict(
                        holder=other.claim,
                        text=(
                            f"claim {record.claim} cannot have {_described(wanted)} of GPU "
                            f"{wanted.gpu} while claim {other.claim} holds {_described(held)}: "
                            f"{found.text}; {_way_out(wanted, held, found, other.claim)}"
                        ),
                        may_pass=found.may_pass,
                    )


def _overfull(
    record: Record, holders: tuple[Record, ...], usable_mib: Mapping[GpuUuid, int]
) -> Iterable[Conflict]:
    for gpu in record.gpus:
        beside = [other for other in holders if any(_parts(other, gpu))]
        uses = list(chain(_parts(record, gpu), *(_parts(other, gpu) for other in beside)))
        compute = sum(use.compute_percent for use in uses)
        memory = sum(use.memory_mib for use in uses)
        limit = usable_mib.get(gpu, memory)
        if not beside or (compute <= COMPUTE_WHOLE_PERCENT and memory <= limit):
            continue
        names = ", ".join(str(other.claim) for other in beside)
        yield Conflict(
            holder=beside[0].claim,
            text=(
                f"claim {record.claim} does not fit on GPU {gpu} beside claims {names}: together "
                f"they hold {compute} % of {COMPUTE_WHOLE_PERCENT} % compute and {memory} MiB of "
                f"{limit} MiB; delete the pod and its claim if this lasts"
            ),
            may_pass=True,
        )


def _parts(record: Record, gpu: GpuUuid) -> Iterable[GpuUse]:
    return (use for use in record.uses if use.gpu == gpu and use.use in (Use.SHARED, Use.SLOT))


def _described(use: GpuUse) -> str:
    setting = f" under {use.setting}" if use.setting else ""
    match use.use:
        case Use.EXCLUSIVE:
            return f"all{setting}"
        case Use.MONITOR:
            return "a view"
        case Use.SHARED | Use.SLOT:
            return f"{use.compute_percent} % and {use.memory_mib} MiB{setting}"


def _way_out(wanted: GpuUse, held: GpuUse, found: Clash, holder: ClaimRef) -> str:
    if found.may_pass:
        return f"it is free once claim {holder} is unprepared"
    kinds = {use.setting.partition("=")[0] for use in (wanted, held)}
    field = "sharing" if len(kinds) > 1 else "timeSlice"
    return f"ask for the same `{field}`, or for another GPU"
