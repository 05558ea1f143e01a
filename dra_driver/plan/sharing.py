"""What one share or slot of a GPU may use, and how that is enforced.

Two amounts are kept apart. What a share *holds* is what the scheduler counted: sums of it stay
within the GPU. What it *may use* is enforced: less where a config lowers it, and more compute where
its quality of service lets it use what is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from dra_driver.errors import ClaimRejected, NotReady, Reason
from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.config import NumaAffinity, SliceConfig
from dra_driver.model.device import TIER_ORDER, GpuFacts, Tier
from dra_driver.model.quantity import MIB
from dra_driver.model.record import GpuUse, Use
from dra_driver.model.share import CheckpointPolicy, GpuShare, Qos, ShareAbility, Sharing
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT, slot_memory_mib, usable_memory_mib
from dra_driver.plan.targets import GpuTarget, SlotTarget

COMPUTE = "compute"
MEMORY = "memory"

_ASK_FOR_WHOLE = "ask for a whole GPU (a request without compute and memory in capacity.requests)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDemand:
    """What is asked of one GPU, and what the GPU can promise.

    Attributes:
        share: identity of the share on this node.
        config_path: where `config` stands; empty where it is made of defaults.
    """

    claim: ClaimRef
    share: str
    result: AllocationResult
    target: GpuTarget | SlotTarget
    config: SliceConfig
    config_path: str
    ability: ShareAbility
    allow_burst: bool
    mps_single_uid: int | None

    @property
    def gpu(self) -> GpuFacts:
        return self.target.gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDecision:
    """What is enforced (`share`), what is counted (`use`), and the words for people."""

    share: GpuShare
    use: GpuUse
    note: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    compute_percent: int
    memory_mib: int
    compute_asked: bool = True
    warnings: tuple[str, ...] = ()


def is_whole(result: AllocationResult) -> bool:
    """Whether an allocated GPU is given whole.

    So it is where the device was not shareable, and where the request names neither compute nor
    memory: by the published defaults such a request takes all memory, so nobody fits beside it.
    """
    shareable = result.share_id is not None or bool(result.consumed)
    return not shareable or not result.asked & {COMPUTE, MEMORY}


def decide_share(demand: ShareDemand) -> ShareDecision:
    """Decide about one share or slot.

    Raises:
        ClaimRejected: the claim, its config or its allocation asks for what cannot be had.
        NotReady: the GPU cannot be shared now.
    """
    sharing, tier = _enforcement(demand)
    _check_later_fields(demand)
    held = _held(demand)
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
    )
    use = GpuUse(
        gpu=demand.gpu.uuid,
        use=Use.SLOT if isinstance(demand.target, SlotTarget) else Use.SHARED,
        device=demand.result.device,
        share_id=demand.result.share_id,
        compute_percent=held.compute_percent,
        memory_mib=held.memory_mib,
        setting=sharing.value,
    )
    note = _note(demand, share=share, use=use, tier=tier)
    return ShareDecision(share=share, use=use, note=note, warnings=held.warnings)


def _enforcement(demand: ShareDemand) -> tuple[Sharing, Tier]:
    ability, gpu = demand.ability, demand.gpu.uuid
    why = f" ({ability.reason})" if ability.reason else ""
    if ability.tier is None:
        raise NotReady(
            Reason.NOT_SUPPORTED,
            f"claim {demand.claim}, request {demand.result.request}: GPU {gpu} cannot be shared "
            f"now{why}: {_ASK_FOR_WHOLE}, or repair the cause",
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
            f"share GPUs as UID N, or {_ASK_FOR_WHOLE}",
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
            f"{_ASK_FOR_WHOLE}",
        )


def _held(demand: ShareDemand) -> _Held:
    usable = usable_memory_mib(demand.gpu)
    if usable is None:
        raise ClaimRejected(
            Reason.NOT_SUPPORTED,
            f"claim {demand.claim}, request {demand.result.request}: GPU {demand.gpu.uuid} does "
            f"not tell its memory, so a part of it cannot be limited: {_ASK_FOR_WHOLE}",
        )
    match demand.target:
        case SlotTarget(compute_percent=percent):
            return _Held(compute_percent=percent, memory_mib=slot_memory_mib(usable, percent))
        case GpuTarget():
            return _held_of_share(demand, usable)


def _held_of_share(demand: ShareDemand, usable_mib: int) -> _Held:
    asked = demand.result.asked
    who = f"claim {demand.claim}, request {demand.result.request}"
    compute_asked, memory_asked = COMPUTE in asked, MEMORY in asked
    compute = _compute_percent(demand) if compute_asked else 1
    memory = _memory_mib(demand) if memory_asked else usable_mib
    warnings = []
    if memory > usable_mib:
        warnings.append(
            f"{who}: its allocation counts {memory} MiB, but GPU {demand.gpu.uuid} has only "
            f"{usable_mib} MiB to give now, so it gets those: re-create the claim to ask for less"
        )
    if not memory_asked:
        warnings.append(
            f"{who}: asks for compute but for no memory, so it holds all memory of GPU "
            f"{demand.gpu.uuid} and no other share fits beside it: name memory in capacity.requests"
        )
    if not compute_asked and demand.config.qos is Qos.GUARANTEED:
        warnings.append(
            f"{who}: asks for memory but for no compute, so with qos Guaranteed it may use 1 % of "
            f"GPU {demand.gpu.uuid}: name compute in capacity.requests, or use qos Burstable"
        )
    return _Held(
        compute_percent=compute,
        memory_mib=min(memory, usable_mib),
        compute_asked=compute_asked,
        warnings=tuple(warnings),
    )


def _compute_percent(demand: ShareDemand) -> int:
    consumed = demand.result.consumed.get(COMPUTE)
    # Compared as a number before it becomes one of Python's, which may have any length.
    if consumed is None or not 1 <= consumed <= COMPUTE_WHOLE_PERCENT:
        raise _not_enforceable(demand, COMPUTE, consumed, "1 to 100 (percent)")
    return int(consumed)


def _memory_mib(demand: ShareDemand) -> int:
    consumed = demand.result.consumed.get(MEMORY)
    largest = demand.gpu.memory_total_bytes or 0
    if consumed is None or not MIB <= consumed <= largest:
        raise _not_enforceable(
            demand, MEMORY, consumed, f"1Mi to the GPU's total of {largest // MIB}Mi"
        )
    return int(consumed) // MIB


def _not_enforceable(
    demand: ShareDemand, name: str, amount: Decimal | None, supported: str
) -> ClaimRejected:
    found = "is missing" if amount is None else f"is {amount.normalize():f}"
    return ClaimRejected(
        Reason.INVALID_CONFIG,
        f"claim {demand.claim}, request {demand.result.request}, device {demand.result.device}: "
        f"consumedCapacity[{name}] of its allocation {found}, but {supported} is what can be "
        f"enforced: re-create the claim with capacity.requests[{name}] in that range",
    )


def _qos(demand: ShareDemand, held: _Held) -> Qos:
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
    return (
        f"request {demand.result.request}: a {kind} of GPU {share.gpu} that holds "
        f"{use.compute_percent} % compute and {use.memory_mib} MiB and may use up to "
        f"{share.compute_percent} % and {share.memory_mib} MiB: sharing {share.sharing}, tier "
        f"{tier}, qos {share.qos}{source}"
    )
