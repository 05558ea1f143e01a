"""What Kubernetes 1.34 does otherwise, faults included: a stand-in that is kinder would mislead."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.plan.allocate import Allocated
from dra_driver.plan.allocate_values import AllocationError, SchedulerPanicError, SchedulerRules
from tests.unit.allocating import (
    OLD,
    Cluster,
    Json,
    choice,
    claim_json,
    gpu,
    request,
    slice_json,
    whole,
)

PADS = [{**whole(f"pad-{number}", memory=999), "attributes": {}} for number in range(32)]


def _cluster(*devices: Json, **fields: Any) -> Cluster:
    return Cluster(slices=[slice_json(*devices)], rules=OLD, **fields)


def test_first_scheduler_refuses_shares_for_ever_when_the_first_device_is_full() -> None:
    cluster = _cluster(*(gpu(f"g{number}") for number in range(5)))
    given = [cluster.names(claim_json(request(memory="10Gi", compute=10))) for _ in range(40)]
    assert sum(map(bool, given)) == 8


def test_first_scheduler_keeps_a_refused_device_marked_until_the_search_ends() -> None:
    small = {**gpu("small", memory=1), "attributes": {}}
    wish = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "large", **choice(memory="10Gi")},
            {"name": "small", **choice(memory="1Gi")},
        ],
    }
    # The check of the first alternative looks at `small`, fails, and `b` stays in use.
    assert _cluster(small, whole("b")).names(claim_json(wish)) == []
    assert _cluster(small, gpu("b")).names(claim_json(wish)) == ["b"]


def test_first_scheduler_fills_all_devices_behind_pads() -> None:
    cluster = _cluster(*PADS, *(gpu(f"g{number}") for number in range(5)))
    given = [cluster.names(claim_json(request(memory="10Gi", compute=10))) for _ in range(41)]
    assert [name for names in given for name in names] == [
        f"g{number}" for number in range(5) for _ in range(8)
    ]


def test_first_scheduler_dies_when_a_slice_has_fewer_devices_than_the_request() -> None:
    slices = [slice_json(whole(name), name=name, resourceSliceCount=2) for name in ("a", "b")]
    cluster = Cluster(slices=slices, rules=OLD)
    assert cluster.names(claim_json(request())) == ["a"]
    with pytest.raises(SchedulerPanicError, match=r"index out of range \[1\] with length 1"):
        Cluster(slices=slices, rules=OLD).allocate(claim_json(request(count=2)))


def test_first_scheduler_gives_one_request_a_device_twice() -> None:
    cluster = _cluster(*PADS, gpu("a"), gpu("b"))
    assert cluster.names(claim_json(request(memory="1Gi", count=3))) == ["a", "a", "a"]


def test_first_scheduler_tells_two_devices_apart_but_forgets_the_one_before() -> None:
    constraint = [{"distinctAttribute": "gpuslice.io/uuid"}]
    cluster = _cluster(*PADS, gpu("a"), gpu("b"))
    two = claim_json(request(memory="1Gi", count=2), constraints=constraint)
    three = claim_json(request(memory="1Gi", count=3), constraints=constraint)
    assert cluster.names(two) == ["a", "b"]
    assert cluster.names(three) == ["a", "b", "a"]


def test_first_scheduler_compares_devices_not_values() -> None:
    constraint = [{"distinctAttribute": "gpuslice.io/numa"}]
    cluster = _cluster(*PADS, whole("a", numa=1), whole("b", numa=1))
    assert cluster.names(claim_json(request(count=2), constraints=constraint)) == ["a", "b"]


def test_first_scheduler_takes_all_that_have_room_for_all() -> None:
    cluster = _cluster(*PADS, gpu("a"), gpu("b"))
    assert cluster.names(claim_json(request(memory="60Gi"))) == ["a"]
    assert cluster.names(claim_json(request(memory="60Gi", allocationMode="All"))) == ["b"]


def test_first_scheduler_uses_incomplete_pools_and_stops_at_invalid_ones() -> None:
    incomplete = [slice_json(whole("a"), resourceSliceCount=2)]
    assert Cluster(slices=incomplete, rules=OLD).names(claim_json(request())) == ["a"]
    with pytest.raises(AllocationError, match="duplicate device name a"):
        _cluster(whole("a"), whole("a")).allocate(claim_json(request()))


def test_first_scheduler_copies_no_tolerations_and_heeds_every_effect() -> None:
    told = {**gpu("a"), "taints": [{"key": "k", "effect": "None"}]}
    cluster = _cluster(*PADS, told)
    assert cluster.names(claim_json(request(memory="1Gi"))) == []
    tolerations = [{"key": "k", "operator": "Exists"}]
    answer = cluster.allocate(claim_json(request(memory="1Gi", tolerations=tolerations)))
    assert isinstance(answer, Allocated)
    assert "tolerations" not in answer.allocations[0]["devices"]["results"][0]


def test_first_scheduler_names_all_requests_in_configs_and_repeats_them() -> None:
    own = {"requests": ["x", "y"], "opaque": {"driver": "d", "parameters": {}}}
    cluster = _cluster(*PADS, gpu("a"))
    claim = claim_json(request("x", memory="1Gi"), request("y", memory="1Gi"), config=[own])
    answer = cluster.allocate(claim)
    assert isinstance(answer, Allocated)
    assert answer.allocations[0]["devices"]["config"] == [{"source": "FromClaim", **own}] * 2


def test_first_scheduler_without_the_gate_gives_whole_devices_only() -> None:
    rules = SchedulerRules(minor=34, consumable=False)
    cluster = Cluster(slices=[slice_json(gpu("a"), gpu("b"))], rules=rules)
    assert cluster.names(claim_json(request())) == ["a"]
    assert cluster.names(claim_json(request())) == ["b"]
    assert cluster.names(claim_json(request())) == []
    with pytest.raises(AllocationError, match="DRAConsumableCapacity feature is disabled"):
        cluster.allocate(claim_json(request(memory="1Gi")))


def test_first_scheduler_forgets_its_alternative_when_it_takes_all() -> None:
    cluster = _cluster(*PADS, whole("a"), whole("b"))
    wish = {
        "name": "gpus",
        "firstAvailable": [
            {"name": "huge", **choice(memory="900Gi")},
            {"name": "all", **choice(allocationMode="All")},
        ],
    }
    assert cluster.names(claim_json(wish)) == ["a"]
