"""What a search has taken so far, and whether one more device can be taken.

Source: k8s.io/dynamic-resource-allocation v0.34.4 and v0.37.2, structured, allocateDevice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from dra_driver.plan.allocate_amounts import fits, taken
from dra_driver.plan.allocate_constraints import Constraint, build_constraint
from dra_driver.plan.allocate_requests import Candidate
from dra_driver.plan.allocate_values import (
    AllocationError,
    DeviceId,
    DeviceRequest,
    Held,
    Offer,
    PendingClaim,
    SchedulerPanicError,
    SchedulerRules,
)

Undo = Callable[[], None]

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """One device of a solution.

    Attributes:
        shared: it gets a share id.
        amounts: what is taken of a shared device, by capacity.
        node: of the device's slice; empty where all nodes reach it.
    """

    request: DeviceRequest
    offer: Offer
    node: str
    shared: bool
    amounts: tuple[tuple[str, Decimal], ...]


class Taking:
    """The state of one search.

    Args:
        held: what allocated claims hold.
    """

    def __init__(
        self, claims: tuple[PendingClaim, ...], *, held: Held, rules: SchedulerRules
    ) -> None:
        self._claims = claims
        self._held = held
        self._rules = rules
        self._constraints: list[list[Constraint]] = [
            [build_constraint(each, rules) for each in claim.constraints] for claim in claims
        ]
        self._whole: dict[DeviceId, set[int]] = {}
        self._amounts: dict[DeviceId, dict[str, Decimal]] = {}
        self._chosen: list[list[Chosen]] = [[] for _ in claims]

    def chosen(self) -> tuple[tuple[Chosen, ...], ...]:
        """Devices per claim, in the order in which they were taken."""
        return tuple(map(tuple, self._chosen))

    def count(self, claim: int) -> int:
        return len(self._chosen[claim])

    def in_use(self, claim: int, request: DeviceRequest, offer: Offer) -> bool:
        """Whether somebody has the whole device; an admin only minds its own claim."""
        whole = self._whole.get(offer.id, set())
        if request.admin_access:
            return claim in whole
        return bool(whole) or offer.id in self._held.whole

    def fits(self, request: DeviceRequest, offer: Offer) -> bool:
        """Whether there is room for the request beside all shares; see `allocate_amounts.fits`."""
        return not self._rules.consumable or fits(
            request.capacity,
            offer,
            self._rules,
            held=self._held.amounts.get(offer.id, {}),
            taking=self._amounts.get(offer.id, {}),
        )

    def take(
        self, claim: int, number: int, request: DeviceRequest, candidate: Candidate, *, must: bool
    ) -> Undo | None:
        """Take a device, and give how to undo that; None where it cannot be had.

        `number` is how many devices the request has been given already; `must` says that it cannot
        do without this one.

        Raises:
            AllocationError: a constraint forbids a device that must be had.
            SchedulerPanicError: the scheduler would not survive this.
        """
        offer = candidate.offer
        shared = self._rules.consumable and offer.shareable
        if self.in_use(claim, request, offer) or self._tainted(request, offer):
            return None
        if not self._constrain(claim, request, offer, must=must):
            return None
        if not shared:
            self._whole.setdefault(offer.id, set()).add(claim)
        if not self._fits_again(number, request, candidate):
            # 1.34 leaves the device marked and constrained for the rest of the search.
            if not self._rules.first:
                self._release(claim, request, offer)
            return None
        return self._record(claim, request, candidate, shared=shared)

    def _record(
        self, claim: int, request: DeviceRequest, candidate: Candidate, *, shared: bool
    ) -> Undo:
        offer = candidate.offer
        amounts = taken(request.capacity, offer, self._rules) if shared else {}
        self._sum_up(offer, amounts, sign=1)
        self._chosen[claim].append(
            Chosen(
                request=request,
                offer=offer,
                node=candidate.slice.node,
                shared=shared,
                amounts=tuple(sorted(amounts.items())),
            )
        )

        def undo() -> None:
            self._chosen[claim].pop()
            self._sum_up(offer, amounts, sign=-1)
            self._release(claim, request, offer)

        return undo

    def _release(self, claim: int, request: DeviceRequest, offer: Offer) -> None:
        for constraint in self._constraints[claim]:
            constraint.remove(request, offer)
        self._whole.get(offer.id, set()).discard(claim)

    def _constrain(self, claim: int, request: DeviceRequest, offer: Offer, *, must: bool) -> bool:
        added: list[Constraint] = []
        for constraint in self._constraints[claim]:
            if not constraint.add(request, offer):
                if must:
                    raise AllocationError(
                        f"claim {self._claims[claim].label}, request {request.name}: cannot add"
                        f" device {offer.id} because a claim constraint would not be satisfied"
                    )
                for each in added:
                    each.remove(request, offer)
                return False
            added.append(constraint)
        return True

    def _fits_again(self, number: int, request: DeviceRequest, candidate: Candidate) -> bool:
        """The second look at capacity, for which 1.34 takes the wrong device of the slice."""
        if not self._rules.consumable or not self._rules.first:
            return self.fits(request, candidate.offer)
        offers = candidate.slice.offers
        if number >= len(offers):
            raise SchedulerPanicError(
                f"kube-scheduler 1.34 would panic: index out of range [{number}] with length"
                f" {len(offers)}; it looks for device number {number + 1} of request"
                f" {request.full_name} in ResourceSlice {candidate.slice.name}"
            )
        return self.fits(request, offers[number])

    def _tainted(self, request: DeviceRequest, offer: Offer) -> bool:
        return self._rules.taints and any(
            not any(toleration.tolerates(taint) for toleration in request.tolerations)
            for taint in offer.taints
            if self._rules.first or taint.effect in _BLOCKING
        )

    def _sum_up(self, offer: Offer, amounts: dict[str, Decimal], *, sign: int) -> None:
        sums = self._amounts.setdefault(offer.id, {})
        for name, amount in amounts.items():
            sums[name] = sums.get(name, Decimal(0)) + sign * amount
