"""Who gets which devices: what kube-scheduler decides for a pod on one node, as a function.

The driver itself never allocates. The demo and the tests need a scheduler without a cluster, and
`allocate` is one for claims that this driver's devices can satisfy. It is compared with the real
one; see SchedulerRules for the versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
"""Of a node, as FailedScheduling Events quote it."""


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
            evaluated, a class is missing, a request can never be satisfied.
        SchedulerPanicError: the scheduler would die.
    """
    pools = gather_pools(view.slices, view.node, rules)
    selection = Selection(matches=matches)
    planner = RequestPlanner(
        pools=pools, classes=view.classes, held=view.held, rules=rules, selection=selection
    )
    plans = planner.plan(claims)
    search = Search(claims, plans, pools=pools, held=view.held, rules=rules, selection=selection)
    solution = search.solve()
    if solution is None:
        invalid = not rules.first and any(pool.invalid for pool in pools)
        return Refused(
            reason="invalid resource pools were encountered" if invalid else CANNOT_ALLOCATE
        )
    return Allocated(
        allocations=tuple(
            allocation_json(
                claim,
                solution.chosen[index],
                solution.choices[index],
                classes=view.classes,
                node=view.node,
                rules=rules,
                share_ids=share_ids,
            )
            for index, claim in enumerate(claims)
        )
    )
