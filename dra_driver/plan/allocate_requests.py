"""What is known of a pod's requests before the search: classes, selectors, how many devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dra_driver.plan.allocate_amounts import fits
from dra_driver.plan.allocate_values import (
    RESULTS_MAX,
    AllocationError,
    DeviceId,
    DeviceRequest,
    Held,
    MainRequest,
    Matches,
    Offer,
    OfferedClass,
    OfferedPool,
    OfferedSlice,
    PendingClaim,
    SchedulerRules,
)

RequestKey = tuple[int, int, int]
"""Indices of claim, request and choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A device with its slice."""

    offer: Offer
    slice: OfferedSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlan:
    """One choice of a request.

    Attributes:
        count: how many devices it needs.
        everything: the devices of a request for all.
    """

    request: DeviceRequest
    device_class: OfferedClass
    count: int
    everything: tuple[Candidate, ...] = ()


@dataclass(slots=True, kw_only=True)
class Selection:
    """Answers of selectors, each asked once."""

    matches: Matches
    _known: dict[tuple[RequestKey, DeviceId], bool] = field(default_factory=dict)

    def selects(self, key: RequestKey, plan: RequestPlan, offer: Offer) -> bool:
        """Whether class and request select a device.

        Raises:
            AllocationError: an expression cannot be evaluated.
        """
        known = self._known.get((key, offer.id))
        if known is None:
            known = all(
                self._ask(where, expression, offer)
                for where, expression in _expressions(plan.device_class, plan.request)
            )
            self._known[key, offer.id] = known
        return known

    def forget(self) -> None:
        self._known.clear()

    def _ask(self, where: str, expression: str, offer: Offer) -> bool:
        try:
            return self.matches(expression, offer)
        except AllocationError as error:
            raise AllocationError(f"{where} on device {offer.id}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPlanner:
    """Looks at all requests of a pod's claims; all classes that they name are there."""

    pools: tuple[OfferedPool, ...]
    classes: Mapping[str, OfferedClass]
    held: Held
    rules: SchedulerRules
    selection: Selection

    def plan(self, claims: tuple[PendingClaim, ...]) -> dict[RequestKey, RequestPlan]:
        """Plans of all choices of all requests.

        Raises:
            AllocationError: a request can never be satisfied as it is written.
        """
        plans = {}
        for claim_index, claim in enumerate(claims):
            least = 0
            for request_index, request in enumerate(claim.requests):
                counts = []
                for choice, each in enumerate(request.choices):
                    key = (claim_index, request_index, choice)
                    plans[key] = self._choice(claim, request, each, key)
                    counts.append(plans[key].count)
                least += min(counts)
            if least > RESULTS_MAX:
                raise AllocationError(
                    f"claim {claim.label}: number of requested devices {least} exceeds the claim"
                    f" limit of {RESULTS_MAX}"
                )
        # A request for all devices may have asked under the wrong key, see _choice.
        self.selection.forget()
        return plans

    def _choice(
        self, claim: PendingClaim, request: MainRequest, choice: DeviceRequest, key: RequestKey
    ) -> RequestPlan:
        where = f"claim {claim.label}, request {choice.name}"
        if choice.capacity and not self.rules.consumable:
            raise AllocationError(
                f"{where}: has capacity requests, but the DRAConsumableCapacity feature is disabled"
            )
        device_class = self.classes[choice.device_class]
        plan = RequestPlan(request=choice, device_class=device_class, count=choice.count)
        if not choice.all_devices:
            return plan
        if self.rules.first and request.prioritized:
            # 1.34 remembers answers under the choice before: what that one selects, this one does.
            key = (*key[:2], max(0, key[2] - 1))
        found = tuple(self._everything(where, plan, key))
        return RequestPlan(
            request=choice, device_class=device_class, count=len(found), everything=found
        )

    def _everything(self, where: str, plan: RequestPlan, key: RequestKey) -> Iterator[Candidate]:
        for pool in self.pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                raise AllocationError(
                    f"{where}: asks for all devices, but resource pool {pool.driver}/{pool.name} is"
                    f" currently {state}"
                )
            for each in pool.slices:
                for offer in each.offers:
                    selected = self.selection.selects(key, plan, offer)
                    if selected and self._has_room(plan, offer):
                        yield Candidate(offer=offer, slice=each)

    def _has_room(self, plan: RequestPlan, offer: Offer) -> bool:
        """1.34 means by all those that have room; later all that could ever have."""
        if not self.rules.consumable:
            return True
        held = self.held.amounts.get(offer.id, {}) if self.rules.first else {}
        return fits(plan.request.capacity, offer, self.rules, held=held, taking={})


def _expressions(device_class: OfferedClass, request: DeviceRequest) -> Iterator[tuple[str, str]]:
    for index, text in enumerate(device_class.selectors):
        yield f"class {device_class.name}: selector #{index}", text
    for index, text in enumerate(request.selectors):
        yield f"request {request.full_name}: selector #{index}", text
