"""Whether the devices of one claim can stand together.

A container that uses a request gets all devices of that request. It can be a client of one MPS
server only, as the folder of its socket is one variable of the process, and through it no other
GPU; so a request gives one MPS share or none. Shares of several requests are fine as long as each
container names one request: which one does is not told to a driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.claim import Claim
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Use
from dra_driver.model.share import Sharing
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT, usable_memory_mib
from dra_driver.plan.decisions import Decision
from dra_driver.plan.overlap import clash


def check_together(claim: Claim, decisions: Sequence[Decision], *, driver: str) -> None:
    """Check the decisions about one claim against each other.

    Raises:
        ClaimRejected: two of them exclude each other, or all do not fit on a GPU.
    """
    for first, second in combinations(decisions, 2):
        _check_requests(claim, first, second, driver)
        found = clash(first.use, second.use)
        if found is not None:
            raise ClaimRejected(
                Reason.INVALID_CONFIG,
                f"claim {claim.ref}: requests {first.result.request} and {second.result.request} "
                f"cannot both have GPU {first.use.gpu}: {found.text}; give them the same config, "
                f"or keep them apart by constraints: [{{distinctAttribute: {driver}/uuid}}]",
            )
    _check_sums(claim, decisions)


def _check_sums(claim: Claim, decisions: Sequence[Decision]) -> None:
    """The scheduler counts; where it was misled, no tenant may pay for it."""
    held = [each for each in decisions if each.use.use in (Use.SHARED, Use.SLOT)]
    by_gpu: dict[GpuUuid, list[Decision]] = {}
    for each in held:
        by_gpu.setdefault(each.use.gpu, []).append(each)
    for gpu, mine in sorted(by_gpu.items()):
        compute = sum(each.use.compute_percent for each in mine)
        memory = sum(each.use.memory_mib for each in mine)
        usable = usable_memory_mib(mine[0].entry.gpu)
        if compute > COMPUTE_WHOLE_PERCENT or (usable is not None and memory > usable):
            raise ClaimRejected(
                Reason.NOT_SUPPORTED,
                f"claim {claim.ref} is allocated {compute} % compute and {memory} MiB of GPU "
                f"{gpu}, which has {COMPUTE_WHOLE_PERCENT} % and {usable} MiB: delete the pod "
                "and its claim, so that they are scheduled anew",
            )


def _check_requests(claim: Claim, first: Decision, second: Decision, driver: str) -> None:
    if first.result.main_request != second.result.main_request:
        return
    if Use.MONITOR in (first.use.use, second.use.use):
        return
    where = (
        f"claim {claim.ref}, request {first.result.main_request}: its containers would get two "
        f"devices at once, {first.result.device} and {second.result.device}"
    )
    apart = f"constraints: [{{distinctAttribute: {driver}/uuid}}]"
    if Sharing.MPS in (_sharing(first), _sharing(second)):
        raise ClaimRejected(
            Reason.NOT_SUPPORTED,
            f"{where}, but a container can use one MPS share and no GPU beside it: write one "
            f"request with count 1 for each container (with {apart} where they have to be on "
            "different GPUs), or ask for whole GPUs",
        )
    if first.use.gpu == second.use.gpu:
        raise ClaimRejected(
            Reason.NOT_SUPPORTED,
            f"{where}, both of GPU {first.use.gpu}: write {apart} into the claim, or count 1",
        )


def _sharing(decision: Decision) -> Sharing | None:
    return decision.share.sharing if decision.share is not None else None
