"""What is asked of one GPU by a share or a slot, and how much of the GPU it holds for that."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.claim import AllocationResult, ClaimRef
from dra_driver.model.config import SliceConfig
from dra_driver.model.device import GpuFacts
from dra_driver.model.quantity import MIB
from dra_driver.model.share import Qos, ShareAbility
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT, slot_memory_mib, usable_memory_mib
from dra_driver.plan.targets import GpuTarget, SlotTarget

COMPUTE = "compute"
MEMORY = "memory"

ASK_FOR_WHOLE = "ask for a whole GPU (a request without compute and memory in capacity.requests)"


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
class Held:
    """What the scheduler counted for a share or slot."""

    compute_percent: int
    memory_mib: int
    compute_asked: bool = True
    warnings: tuple[str, ...] = ()


def held_amounts(demand: ShareDemand) -> Held:
    """Tell what a share or slot holds.

    Raises:
        ClaimRejected: the allocation or the GPU has no amount that can be enforced.
    """
    usable = usable_memory_mib(demand.gpu)
    if usable is None:
        raise ClaimRejected(
            Reason.NOT_SUPPORTED,
            f"claim {demand.claim}, request {demand.result.request}: GPU {demand.gpu.uuid} does "
            f"not tell its memory, so a part of it cannot be limited: {ASK_FOR_WHOLE}",
        )
    match demand.target:
        case SlotTarget(compute_percent=percent):
            held = Held(compute_percent=percent, memory_mib=slot_memory_mib(usable, percent))
        case GpuTarget():
            held = _held_of_share(demand, usable)
    if held.memory_mib < 1:
        # A limit of 0 would be none.
        raise ClaimRejected(
            Reason.NOT_SUPPORTED,
            f"claim {demand.claim}, request {demand.result.request}: GPU {demand.gpu.uuid} has "
            f"{usable} MiB to give, too little for a part of it: {ASK_FOR_WHOLE}",
        )
    return held


def _held_of_share(demand: ShareDemand, usable_mib: int) -> Held:
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
    return Held(
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
