"""The search for devices: claims in order, requests in order, devices in order, first fit.

It follows k8s.io/dynamic-resource-allocation v0.34.4 (structured/internal/experimental) and v0.37.2
(structured/internal/incubating), function by function: depth first, with backtracking, and the
first complete solution wins. Nothing is scored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dra_driver.plan.allocate_requests import Candidate, RequestKey, RequestPlan, Selection
from dra_driver.plan.allocate_state import Chosen, Taking, Undo
from dra_driver.plan.allocate_values import (
    RESULTS_MAX,
    AllocationError,
    Held,
    Offer,
    OfferedPool,
    PendingClaim,
    SchedulerRules,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Devices per claim in order of allocation, and which choice of each request was taken."""

    chosen: tuple[tuple[Chosen, ...], ...]
    choices: tuple[tuple[int, ...], ...]


class _TooManyResults(Exception):  # noqa: N818 - it steers the search and never leaves it
    """No solution with these devices stays within the results that a claim can have."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far the search is; `device` is the number of the device within its request."""

    claim: int = 0
    request: int = 0
    choice: int = 0
    device: int = 0

    @property
    def key(self) -> RequestKey:
        return self.claim, self.request, self.choice


class Search:
    """One attempt on one node; `solve` is called once."""

    def __init__(
        self,
        claims: tuple[PendingClaim, ...],
        plans: dict[RequestKey, RequestPlan],
        *,
        pools: tuple[OfferedPool, ...],
        held: Held,
        rules: SchedulerRules,
        selection: Selection,
    ) -> None:
        self._claims = claims
        self._plans = plans
        self._rules = rules
        self._selection = selection
        self._candidates = tuple(each for pool in pools for each in _candidates(pool, rules))
        self._taking = Taking(claims, held=held, rules=rules)
        self._choices: dict[tuple[int, int], int] = {}

    def solve(self) -> Solution | None:
        """Find the first solution; None: there is none.

        Raises:
            AllocationError: the attempt has to end without an answer.
        """
        try:
            found = self._next(_Place(), inside_choice=False, start=0)
        except _TooManyResults as error:
            raise AllocationError("allocation max size exceeded") from error
        if not found:
            return None
        return Solution(
            chosen=self._taking.chosen(),
            choices=tuple(
                tuple(self._choices.get((index, number), 0) for number in range(len(each.requests)))
                for index, each in enumerate(self._claims)
            ),
        )

    def _next(self, at: _Place, *, inside_choice: bool, start: int) -> bool:
        """Find devices from this place to the end of all claims."""
        if at.claim == len(self._claims):
            return True
        claim = self._claims[at.claim]
        if at.request == len(claim.requests):
            try:
                return self._next(_Place(at.claim + 1), inside_choice=False, start=0)
            except _TooManyResults:
                return False
        if claim.requests[at.request].prioritized and not inside_choice:
            return self._prioritized(at)
        return self._devices(at, inside_choice=inside_choice, start=start)

    def _devices(self, at: _Place, *, inside_choice: bool, start: int) -> bool:
        """Find the devices of one choice from this one on, and all that follows."""
        plan = self._plans[at.key]
        if plan.request.all_devices and not plan.everything:
            return False
        if at.device >= plan.count:
            return self._next(_Place(at.claim, at.request + 1), inside_choice=False, start=0)
        if self._taking.count(at.claim) + plan.count - at.device > RESULTS_MAX:
            raise _TooManyResults
        if plan.request.all_devices:
            return self._everything(at, plan, inside_choice=inside_choice)
        return self._first_fit(at, plan, inside_choice=inside_choice, start=start)

    def _prioritized(self, at: _Place) -> bool:
        always_too_many = True
        for choice in range(len(self._claims[at.claim].requests[at.request].choices)):
            try:
                found = self._next(replace(at, choice=choice), inside_choice=True, start=0)
            except _TooManyResults:
                continue
            always_too_many = False
            if found:
                self._choices[at.claim, at.request] = choice
                return True
        if always_too_many:
            raise _TooManyResults
        return False

    def _everything(self, at: _Place, plan: RequestPlan, *, inside_choice: bool) -> bool:
        undo = self._take(at, plan, plan.everything[at.device])
        if undo is None:
            return False
        # 1.34 forgets here which alternative it is in, and goes on with the first.
        choice = 0 if self._rules.first else at.choice
        after = replace(at, choice=choice, device=at.device + 1)
        return self._or_undo(undo, after, inside_choice=inside_choice, start=0)

    def _first_fit(self, at: _Place, plan: RequestPlan, *, inside_choice: bool, start: int) -> bool:
        for index in range(start, len(self._candidates)):
            candidate = self._candidates[index]
            if isinstance(candidate, AllocationError):
                raise candidate
            if not self._usable(at, plan, candidate.offer):
                continue
            undo = self._take(at, plan, candidate)
            if undo is None:
                continue
            # In 1.34 one request may be given shares of one device again and again.
            onward = 0 if self._rules.first else index + 1
            after = replace(at, device=at.device + 1)
            if self._or_undo(undo, after, inside_choice=inside_choice, start=onward):
                return True
        return False

    def _or_undo(self, undo: Undo, after: _Place, *, inside_choice: bool, start: int) -> bool:
        try:
            found = self._next(after, inside_choice=inside_choice, start=start)
        except _TooManyResults:
            undo()
            raise
        if not found:
            undo()
        return found

    def _usable(self, at: _Place, plan: RequestPlan, offer: Offer) -> bool:
        return (
            not self._taking.in_use(at.claim, plan.request, offer)
            and self._selection.selects(at.key, plan, offer)
            and self._taking.fits(plan.request, offer)
        )

    def _take(self, at: _Place, plan: RequestPlan, candidate: Candidate) -> Undo | None:
        must = plan.request.all_devices
        return self._taking.take(at.claim, at.device, plan.request, candidate, must=must)


def _candidates(pool: OfferedPool, rules: SchedulerRules) -> Iterator[Candidate | AllocationError]:
    """Devices in the order in which they are tried; 1.34 stops where a pool is invalid."""
    if pool.invalid:
        if rules.first:
            yield AllocationError(f"pool {pool.name} is invalid: {pool.invalid}")
        return
    for each in pool.slices:
        for offer in each.offers:
            yield Candidate(offer=offer, slice=each)
