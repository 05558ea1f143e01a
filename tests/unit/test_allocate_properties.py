"""What holds for every allocation, checked by plain sums and by trying all possibilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.model.quantity import parse_quantity
from dra_driver.plan.allocate_values import AllocationError, SchedulerRules
from tests.unit.allocating import (
    NEW,
    OLD,
    Cluster,
    Json,
    claim_json,
    gpu,
    overcommitted,
    request,
    slice_json,
    whole,
)

_NAMES = "abcd"


@st.composite
def _devices(draw: st.DrawFn) -> list[Json]:
    return [
        draw(st.sampled_from([gpu, gpu, whole]))(
            name,
            memory=draw(st.integers(4, 10)),
            compute=draw(st.sampled_from([50, 100])),
            numa=draw(st.integers(0, 1)),
        )
        for name in _NAMES[: draw(st.integers(1, len(_NAMES)))]
    ]


@st.composite
def _claims(draw: st.DrawFn) -> Json:
    requests = [
        request(
            f"r{number}",
            memory=draw(st.none() | st.sampled_from(["1Gi", "1500Mi", "3G", "6Gi", "11Gi"])),
            compute=draw(st.none() | st.integers(1, 60)),
            count=draw(st.integers(1, 2)),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    kinds = ["matchAttribute", "distinctAttribute"]
    constraints = draw(
        st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from(["uuid", "numa"])), max_size=1)
    )
    return claim_json(
        *requests,
        name=draw(st.sampled_from(["one", "two"])),
        constraints=[{kind: f"gpuslice.io/{name}"} for kind, name in constraints],
    )


_PODS = st.lists(st.lists(_claims(), min_size=1, max_size=2), min_size=1, max_size=6)
_RULES = st.sampled_from([NEW, OLD])
_WANTED_MAX = 5
"""Devices of one pod, so that all possibilities can be tried."""


@given(devices=_devices(), pods=_PODS, rules=_RULES)
@settings(deadline=None)
def test_allocate_never_overcommits(
    devices: list[Json], pods: list[list[Json]], rules: SchedulerRules
) -> None:
    cluster = Cluster(slices=[slice_json(*devices)], rules=rules)
    for claims in pods:
        _try(cluster, claims)
        assert overcommitted(cluster) == []


@given(devices=_devices(), pods=_PODS, rules=_RULES)
@settings(deadline=None)
def test_allocate_is_deterministic(
    devices: list[Json], pods: list[list[Json]], rules: SchedulerRules
) -> None:
    one, other = (Cluster(slices=[slice_json(*devices)], rules=rules) for _ in range(2))
    for claims in pods:
        assert _try(one, claims) == _try(other, claims)
    assert one.claims == other.claims


@given(devices=_devices(), pods=_PODS)
@settings(deadline=None)
def test_allocate_finds_a_solution_where_there_is_one_and_only_there(
    devices: list[Json], pods: list[list[Json]]
) -> None:
    cluster = Cluster(slices=[slice_json(*devices)])
    for claims in (each for each in pods if _wanted(each) <= _WANTED_MAX):
        possible = any(
            _is_solution(cluster, claims, picks)
            for picks in itertools.product(_NAMES[: len(devices)], repeat=_wanted(claims))
        )
        names = _try(cluster, claims)
        assert bool(names) == possible
        if isinstance(names, list) and names:
            del cluster.claims[-len(claims) :]
            assert _is_solution(cluster, claims, names)
            _try(cluster, claims)


def _try(cluster: Cluster, claims: list[Json]) -> list[str] | str:
    try:
        return cluster.names(*claims)
    except AllocationError as error:
        return str(error)


def _wanted(claims: list[Json]) -> int:
    return sum(each["exactly"]["count"] for claim in claims for each in _requests(claim))


def _requests(claim: Json) -> list[Json]:
    requests: list[Json] = claim["spec"]["devices"]["requests"]
    return requests


def _is_solution(cluster: Cluster, claims: list[Json], picks: Sequence[str]) -> bool:
    """Whether giving these devices, in order, would be right; written without the allocator."""
    devices, used = cluster.devices(), _used(cluster)
    queue = iter(picks)
    for claim in claims:
        of_claim: list[Json] = []
        for each in _requests(claim):
            mine = [devices[next(queue)] for _ in range(each["exactly"]["count"])]
            if len({device["name"] for device in mine}) < len(mine):
                return False
            of_claim += mine
            asked = each["exactly"].get("capacity", {}).get("requests", {})
            if not all(_spend(used, device, asked) for device in mine):
                return False
        if not _constraints_hold(claim, of_claim):
            return False
    return True


def _used(cluster: Cluster) -> dict[Any, Decimal]:
    used: dict[Any, Decimal] = {}
    for claim in cluster.claims:
        for result in claim["status"]["allocation"]["devices"]["results"]:
            key = (result["device"], "")
            used[key] = Decimal(1)
            for name, text in result.get("consumedCapacity", {}).items():
                key = (result["device"], name)
                used[key] = used.get(key, Decimal(0)) + parse_quantity(text)
    return used


def _spend(used: dict[Any, Decimal], device: Json, asked: Json) -> bool:
    """Add what a request takes of a device; False where it is not there."""
    shareable = device.get("allowMultipleAllocations", False)
    if not shareable and (device["name"], "") in used:
        return False
    used[device["name"], ""] = Decimal(1)
    for name, capacity in device["capacity"].items():
        value = parse_quantity(capacity["value"])
        if not shareable:
            if name in asked and parse_quantity(asked[name]) > value:
                return False
            continue
        step = 1 << 30 if name == "memory" else 1
        default = value if name == "memory" else Decimal(1)
        amount = parse_quantity(asked[name]) if name in asked else default
        total = used.get((device["name"], name), Decimal(0)) + math.ceil(amount / step) * step
        if total > value:
            return False
        used[device["name"], name] = total
    return True


def _constraints_hold(claim: Json, devices: list[Json]) -> bool:
    for constraint in claim["spec"]["devices"]["constraints"]:
        ((kind, name),) = constraint.items()
        values = [str(each["attributes"][name.split("/")[1]]) for each in devices]
        different = len(set(values))
        if different != (1 if kind == "matchAttribute" else len(values)):
            return False
    return True
