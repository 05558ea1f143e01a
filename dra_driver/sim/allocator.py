"""The embedded scheduler's decision, from JSON to JSON; the decision itself is `plan.allocate`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver.errors import GpusliceError
from dra_driver.plan.allocate import Allocated, ClusterView, Refused, allocate
from dra_driver.plan.allocate_parse import parse_claim, parse_class, parse_held, parse_slice
from dra_driver.plan.allocate_values import Matches, SchedulerRules
from dra_driver.sim.cel import CelSelectors

Json = Mapping[str, Any]


class Allocator:
    """Allocates claims of pods; keeps nothing but compiled selectors.

    Args:
        share_ids: names shares, each once; by default at random, as in Kubernetes.
    """

    def __init__(self, rules: SchedulerRules, *, share_ids: Iterator[str] | None = None) -> None:
        self._rules = rules
        self._share_ids = share_ids or random_share_ids()
        self._matches: Matches = CelSelectors()

    def allocate(
        self,
        claims: Iterable[Json],
        *,
        node: str,
        slices: Iterable[Json],
        classes: Iterable[Json],
        others: Iterable[Json],
    ) -> Allocated | Refused:
        """Allocate the claims of one pod that have no allocation yet.

        Args:
            claims: ResourceClaims.
            node: the node's name.
            slices: ResourceSlices of all nodes.
            classes: DeviceClasses.
            others: ResourceClaims of all pods; those with an allocation count.

        Raises:
            AllocationError: as in `plan.allocate`.
        """
        parsed = tuple(map(parse_class, classes))
        view = ClusterView(
            node=node,
            slices=tuple(map(parse_slice, slices)),
            classes={each.name: each for each in parsed},
            held=parse_held(others, consumable=self._rules.consumable),
        )
        return allocate(
            tuple(map(parse_claim, claims)),
            view,
            rules=self._rules,
            matches=self._matches,
            share_ids=self._share_ids,
        )


def allocate_document(document: Json) -> dict[str, Any]:
    """Answer one case, for a comparison with another scheduler.

    Args:
        document: `minor` (Kubernetes 1.x) and, where they are not on, `consumable` and `taints`;
            `node`; lists `slices`, `classes`, `claims` (of one pod) and `others`, of objects.

    Returns:
        `allocations`, in the order of the claims; or `refused`, why the pod does not fit; or
        `error` and its `kind`, AllocationError or SchedulerPanicError.
    """
    rules = SchedulerRules(
        minor=document["minor"],
        consumable=document.get("consumable", True),
        taints=document.get("taints", True),
    )
    try:
        answer = Allocator(rules).allocate(
            document["claims"],
            node=document["node"],
            slices=document.get("slices", ()),
            classes=document.get("classes", ()),
            others=document.get("others", ()),
        )
    except GpusliceError as error:
        return {"error": str(error), "kind": type(error).__name__}
    match answer:
        case Allocated(allocations=allocations):
            return {"allocations": list(allocations)}
        case Refused(reason=reason):
            return {"refused": reason}


def random_share_ids() -> Iterator[str]:
    while True:
        yield str(uuid.uuid4())
