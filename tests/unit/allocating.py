"""Objects for allocations, and an independent look at their results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dra_driver.model.quantity import parse_quantity
from dra_driver.plan.allocate import Allocated, ClusterView, Refused, allocate
from dra_driver.plan.allocate_parse import parse_claim, parse_class, parse_held, parse_slice
from dra_driver.plan.allocate_values import AllocationError, Offer, SchedulerRules

DRIVER = "gpuslice.io"
NODE = "node-a"
NEW = SchedulerRules(minor=37)
OLD = SchedulerRules(minor=34)

Json = dict[str, Any]


def gpu(name: str, *, memory: int = 80, compute: int = 100, **attributes: Any) -> Json:
    """A shareable device; memory in GiB with whole GiB as steps."""
    top = f"{memory}Gi"
    grid = {"min": "1Gi", "max": top, "step": "1Gi"}
    percent = {"min": "1", "max": str(compute), "step": "1"}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": _attributes({"type": "gpu", "uuid": f"GPU-{name}", **attributes}),
        "capacity": {
            "memory": {"value": top, "requestPolicy": {"default": top, "validRange": grid}},
            "compute": {
                "value": str(compute),
                "requestPolicy": {"default": "1", "validRange": percent},
            },
        },
    }


def whole(name: str, *, memory: int = 80, compute: int = 100, **attributes: Any) -> Json:
    """A device for one claim."""
    return {
        "name": name,
        "attributes": _attributes({"type": "gpu", "uuid": f"GPU-{name}", **attributes}),
        "capacity": {"memory": {"value": f"{memory}Gi"}, "compute": {"value": str(compute)}},
    }


def slice_json(*devices: Json, name: str = "slice-0", node: str = NODE, **pool: Any) -> Json:
    identity = {"name": node, "generation": 1, "resourceSliceCount": 1} | pool
    return {
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": identity, "devices": list(devices)},
    }


def class_json(name: str = "gpu", selector: str = "gpu", **spec: Any) -> Json:
    """A class whose selector is the wanted `type`, as `by_type` reads it."""
    selectors = [{"cel": {"expression": selector}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def request(name: str = "gpu", *, memory: Any = None, compute: Any = None, **exactly: Any) -> Json:
    return {"name": name, "exactly": choice(memory=memory, compute=compute, **exactly)}


def choice(*, memory: Any = None, compute: Any = None, **fields: Any) -> Json:
    asked = {"memory": memory, "compute": compute}
    asked = {key: str(value) for key, value in asked.items() if value is not None}
    body: Json = {"deviceClassName": "gpu", **fields}
    if asked:
        body["capacity"] = {"requests": asked}
    return body


def claim_json(*requests: Json, name: str = "claim", **devices: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"devices": {"requests": list(requests), **devices}},
    }


def by_type(expression: str, offer: Offer) -> bool:
    if expression == "broken":
        raise AllocationError("CEL runtime error: no such key: broken")
    return offer.attributes.get("type") == expression


@dataclass(slots=True, kw_only=True)
class Cluster:
    """Slices and classes, and the claims that have been allocated so far."""

    slices: list[Json]
    classes: list[Json] = field(default_factory=lambda: [class_json()])
    rules: SchedulerRules = NEW
    claims: list[Json] = field(default_factory=list)
    share_ids: Iterator[str] = field(default_factory=lambda: map(str, itertools.count()))

    def allocate(self, *claims: Json) -> Allocated | Refused:
        """Allocate claims of one pod, and keep the results."""
        parsed = [parse_class(each) for each in self.classes]
        answer = allocate(
            tuple(map(parse_claim, claims)),
            ClusterView(
                node=NODE,
                slices=tuple(map(parse_slice, self.slices)),
                classes={each.name: each for each in parsed},
                held=parse_held(self.claims, consumable=self.rules.consumable),
            ),
            rules=self.rules,
            matches=by_type,
            share_ids=self.share_ids,
        )
        if isinstance(answer, Allocated):
            for claim, allocation in zip(claims, answer.allocations, strict=True):
                self.claims.append({**claim, "status": {"allocation": allocation}})
        return answer

    def names(self, *claims: Json) -> list[str]:
        """Allocate, and give the devices in order; empty where that was refused."""
        answer = self.allocate(*claims)
        if isinstance(answer, Refused):
            return []
        return [
            result["device"]
            for allocation in answer.allocations
            for result in allocation["devices"]["results"]
        ]

    def devices(self) -> dict[str, Json]:
        return {each["name"]: each for one in self.slices for each in one["spec"]["devices"]}


def overcommitted(cluster: Cluster) -> list[str]:
    """What is given out more than once, by plain sums over all allocated claims."""
    problems = []
    sums: dict[tuple[str, str], Decimal] = {}
    owners: dict[str, int] = {}
    for result in _results(cluster):
        if "shareID" not in result:
            owners[result["device"]] = owners.get(result["device"], 0) + 1
        for name, text in result.get("consumedCapacity", {}).items():
            key = (result["device"], name)
            sums[key] = sums.get(key, Decimal(0)) + parse_quantity(text)
    for device, count in owners.items():
        if count > 1:
            problems.append(f"{device} is given out {count} times")
    for (device, name), total in sums.items():
        value = parse_quantity(cluster.devices()[device]["capacity"][name]["value"])
        if total > value:
            problems.append(f"{device}: {total} of {value} {name}")
    return problems


def _results(cluster: Cluster) -> Iterator[Json]:
    for claim in cluster.claims:
        yield from claim["status"]["allocation"]["devices"]["results"]


def _attributes(values: dict[str, Any]) -> Json:
    kinds = {bool: "bool", int: "int", str: "string"}
    return {name: {kinds[type(value)]: value} for name, value in values.items()}
