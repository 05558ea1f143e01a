"""Who gets which devices: what kube-scheduler decides for a pod on one node, as a function.

The driver itself never allocates. The demo and the tests need a scheduler without a cluster, and
`allocate` is one for claims that this driver's devices can satisfy. It is compared with the real
one; see SchedulerRules for the versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dra_driver.plan.allocate_pools import gather_pools
from dra_driver.plan.allocate_requests import RequestPlanner, Selection
from dra_driver.plan.allocate_results import allocation_json
from dra_driver.plan.allocate_search import Search
from dra_driver.plan.allocate_values import (
    Held,
    Matches,
    OfferedClass,
    OfferedSlice,
    PendingClaim,
    SchedulerRules,
)

CANNOT_ALLOCATE = "cannot allocate all claims"
INVALID_POOLS = "invalid resource pools were encountered"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What the scheduler sees of devices.

    Attributes:
        node: the node that is tried.
        slices: of all nodes, in the order in which the scheduler sees them.
        classes: by name.
    """

    node: str
    slices: tuple[OfferedSlice, ...]
    classes: Mapping[str, OfferedClass]
    held: Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Value of `status.allocation` per claim, in the order of the claims."""

    allocations: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The pod does not fit on this node now; the reason is the scheduler's."""

    reason: str


def allocate(
    claims: tuple[PendingClaim, ...],
    view: ClusterView,
    *,
    rules: SchedulerRules,
    matches: Matches,
    share_ids: Iterator[str],
) -> Allocated | Refused:
    """Allocate all claims of a pod that have no allocation yet, or none.

    Raises:
        AllocationError: the scheduler would end the attempt with an error: a selector cannot be
            evaluated, a request can never be satisfied.
        SchedulerPanicError: the scheduler would die.
    """
    if missing := next(_missing_classes(claims, view.classes), ""):
        return Refused(reason=missing)
    pools = gather_pools(view.slices, view.node, rules)
    selection = Selection(matches=matches)
    planner = RequestPlanner(
        pools=pools, classes=view.classes, held=view.held, rules=rules, selection=selection
    )
    search = Search(
        claims,
        planner.plan(claims),
        pools=pools,
        held=view.held,
        rules=rules,
        selection=selection,
    )
    solution = search.solve()
    if solution is None:
        invalid = not rules.first and any(pool.invalid for pool in pools)
        return Refused(reason=INVALID_POOLS if invalid else CANNOT_ALLOCATE)
    to_json = partial(
        allocation_json, classes=view.classes, node=view.node, rules=rules, share_ids=share_ids
    )
    each = zip(claims, solution.chosen, solution.choices, strict=True)
    return Allocated(allocations=tuple(to_json(*parts) for parts in each))


def _missing_classes(
    claims: tuple[PendingClaim, ...], classes: Mapping[str, OfferedClass]
) -> Iterator[str]:
    """Why the pod waits for a class; the scheduler looks at that before it looks for devices."""
    for request in (each for claim in claims for each in claim.requests):
        for choice in request.choices:
            if choice.device_class not in classes:
                yield (
                    f"request {choice.full_name}: device class {choice.device_class} does not exist"
                )
