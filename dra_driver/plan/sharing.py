"""What one share or slot of a GPU may use, and how that is enforced.

Two amounts are kept apart. What a share *holds* is what the scheduler counted: sums of it stay
within the GPU. What it *may use* is enforced: less where a config lowers it, and more compute where
its quality of service lets it use what is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from dra_driver.errors import ClaimRejected, NotReady, Reason
from dra_driver.model.claim import AllocationResult
from dra_driver.model.config import NumaAffinity
from dra_driver.model.device import TIER_ORDER, Tier
from dra_driver.model.record import GpuUse, Use
from dra_driver.model.share import (
    CheckpointPolicy,
    Expose,
    GpuShare,
    Qos,
    Sharing,
    TimeSlice,
)
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT
from dra_driver.plan.demand import ASK_FOR_WHOLE, COMPUTE, MEMORY, Held, ShareDemand, held_amounts
from dra_driver.plan.targets import SlotTarget

_PARTS = (COMPUTE, MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDecision:
    """What is enforced (`share`), what is counted (`use`), and the words for people.

    Attributes:
        time_slice: what the whole GPU is to be set to; None: it is left as it is.
    """

    share: GpuShare
    use: GpuUse
    note: str
    time_slice: TimeSlice | None = None
    warnings: tuple[str, ...] = ()


def is_whole(result: AllocationResult) -> bool:
    """Whether an allocated GPU is given whole.

    So it is where the device was not shareable, and where the request names neither compute nor
    memory: by the published defaults such a request takes all memory, so nobody fits beside it.
    """
    shareable = result.share_id is not None or bool(result.consumed)
    return not shareable or result.asked.isdisjoint(_PARTS)


def decide_share(demand: ShareDemand) -> ShareDecision:
    """Decide about one share or slot.

    Raises:
        ClaimRejected: the claim, its config or its allocation asks for what cannot be had.
        NotReady: the GPU cannot be shared now.
    """
    sharing, tier = _enforcement(demand)
    _check_later_fields(demand)
    held = held_amounts(demand)
    qos = _qos(demand, held)
    config = demand.config
    free_or_held = held.compute_percent if qos is Qos.GUARANTEED else COMPUTE_WHOLE_PERCENT
    share = GpuShare(
        id=demand.share,
        gpu=demand.gpu.uuid,
        sharing=sharing,
        compute_percent=min(free_or_held, config.max_compute_percent or COMPUTE_WHOLE_PERCENT),
        memory_mib=min(held.memory_mib, config.max_memory_mib or held.memory_mib),
        priority=1 if qos is Qos.BEST_EFFORT else 0,
        qos=qos,
        on_exceed=config.on_exceed,
        expose=demand.ability.expose if sharing is Sharing.MPS else Expose.CONTROL,
    )
    use = GpuUse(
        gpu=demand.gpu.uuid,
        use=Use.SLOT if isinstance(demand.target, SlotTarget) else Use.SHARED,
        device=demand.result.device,
        share_id=demand.result.share_id,
        compute_percent=held.compute_percent,
        memory_mib=held.memory_mib,
        setting=sharing.value if config.time_slice is None else f"{sharing}={config.time_slice}",
    )
    return ShareDecision(
        share=share,
        use=use,
        note=_note(demand, share=share, use=use, tier=tier),
        time_slice=config.time_slice,
        warnings=held.warnings,
    )


def _enforcement(demand: ShareDemand) -> tuple[Sharing, Tier]:
    ability, gpu = demand.ability, demand.gpu.uuid
    why = f" ({ability.reason})" if ability.reason else ""
    if ability.tier is None:
        raise NotReady(
            Reason.NOT_SUPPORTED,
            f"claim {demand.claim}, request {demand.result.request}: GPU {gpu} cannot be shared "
            f"now{why}: {ASK_FOR_WHOLE}, or repair the cause",
        )
    default = Sharing.TIME_SLICING if ability.tier is Tier.NONE else Sharing.MPS
    sharing = demand.config.sharing or default
    if sharing is Sharing.MPS and ability.tier is Tier.NONE:
        raise _refused(
            demand, f"field sharing: MPS cannot be had on GPU {gpu}{why}: use TimeSlicing"
        )
    tier = ability.tier if sharing is Sharing.MPS else Tier.NONE
    wanted = demand.config.minimum_tier
    if wanted is not None and TIER_ORDER.index(tier) < TIER_ORDER.index(wanted):
        raise _refused(
            demand,
            f"field minimumTier: {wanted} is more than sharing {sharing} on GPU {gpu} enforces, "
            f"which is {tier}{why}: lower it, or select the GPU's attribute `tier` in the request",
        )
    alone = not ability.mps_multi_user and demand.mps_single_uid is None
    if sharing is Sharing.MPS and alone:
        raise ClaimRejected(
            Reason.NOT_SUPPORTED,
            f"claim {demand.claim}, request {demand.result.request}: one MPS server of GPU {gpu} "
            f"serves one UID only{why}: run the plugin with --mps-single-uid N and all pods that "
            f"share GPUs as UID N, install GPU driver 555 or later, or {ASK_FOR_WHOLE}",
        )
    return sharing, tier


def _check_later_fields(demand: ShareDemand) -> None:
    config = demand.config
    if config.numa_affinity is NumaAffinity.REQUIRED:
        raise _refused(
            demand,
            "field numaAffinity: Required is not supported by this version: leave it out, or "
            "select the GPU's attribute resource.kubernetes.io/numaNode in the request",
        )
    if config.checkpoint is CheckpointPolicy.REQUIRED:
        raise _refused(
            demand,
            "field checkpoint: Required is not supported for a part of a GPU: leave it out, or "
            f"{ASK_FOR_WHOLE}",
        )


def _qos(demand: ShareDemand, held: Held) -> Qos:
    default = Qos.GUARANTEED if held.compute_asked else Qos.BURSTABLE
    qos = demand.config.qos or default
    if qos is Qos.GUARANTEED or (demand.allow_burst and demand.ability.burst_allowed):
        return qos
    gpu = demand.gpu.uuid
    if demand.config.qos is not None:
        raise _refused(
            demand,
            f"field qos: {qos} lets a share use free compute, which GPU {gpu} does not allow "
            f"(burstAllowed is false): write Guaranteed and name compute in capacity.requests",
        )
    raise ClaimRejected(
        Reason.NOT_SUPPORTED,
        f"claim {demand.claim}, request {demand.result.request}: asks for memory but for no "
        f"compute, so it would use free compute, which GPU {gpu} does not allow (burstAllowed is "
        f"false): name compute in capacity.requests",
    )


def _refused(demand: ShareDemand, text: str) -> ClaimRejected:
    return ClaimRejected(
        Reason.NOT_SUPPORTED, f"claim {demand.claim}: {demand.config_path}: {text}"
    )


def _note(demand: ShareDemand, *, share: GpuShare, use: GpuUse, tier: Tier) -> str:
    kind = "slot" if use.use is Use.SLOT else "share"
    source = f", by {demand.config_path}" if demand.config_path else ""
    holds = (
        f"request {demand.result.request}: a {kind} of GPU {share.gpu} that holds "
        f"{use.compute_percent} % compute and {use.memory_mib} MiB"
    )
    match share.sharing:
        case Sharing.MPS:
            return (
                f"{holds} and may use up to {share.compute_percent} % and {share.memory_mib} MiB: "
                f"sharing {share.sharing}, tier {tier}, qos {share.qos}{source}"
            )
        case Sharing.TIME_SLICING:
            interval = demand.config.time_slice
            told = f", time slice {interval}" if interval is not None else ""
            return (
                f"{holds}: sharing {share.sharing}{told}, tier {tier}: shares take turns, and "
                f"neither amounts nor qos are enforced{source}"
            )
        case _ as never:
            assert_never(never)
