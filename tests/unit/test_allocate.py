"""Which devices claims are given, in the order of Kubernetes 1.37."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.plan.allocate import Allocated, Refused
from dra_driver.plan.allocate_values import AllocationError
from tests.unit.allocating import (
    Cluster,
    Json,
    choice,
    claim_json,
    class_json,
    gpu,
    request,
    slice_json,
    whole,
)


def _cluster(*devices: Json, **fields: Any) -> Cluster:
    return Cluster(slices=[slice_json(*devices)], **fields)


def test_allocate_fills_the_first_device_before_the_next() -> None:
    cluster = _cluster(gpu("a", memory=10), gpu("b", memory=10))
    given = [cluster.names(claim_json(request(memory="4Gi"))) for _ in range(5)]
    assert given == [["a"], ["a"], ["b"], ["b"], []]


def test_allocate_counts_the_scarcer_dimension() -> None:
    cluster = _cluster(gpu("a"), gpu("b"))
    given = [cluster.names(claim_json(request(memory="1Gi", compute=40))) for _ in range(5)]
    assert given == [["a"], ["a"], ["b"], ["b"], []]


def test_allocate_gives_defaults_and_a_share_id() -> None:
    answer = _cluster(gpu("a")).allocate(claim_json(request(memory="1536Mi")))
    assert isinstance(answer, Allocated)
    (allocation,) = answer.allocations
    assert allocation["devices"]["results"] == [
        {
            "request": "gpu",
            "driver": "gpuslice.io",
            "pool": "node-a",
            "device": "a",
            "shareID": "0",
            "consumedCapacity": {"compute": "1", "memory": "2Gi"},
        }
    ]
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"] == [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]


def test_allocate_gives_everything_when_no_amount_is_asked() -> None:
    cluster = _cluster(gpu("a"), gpu("b"))
    assert cluster.names(claim_json(request(memory="1Gi"))) == ["a"]
    assert cluster.names(claim_json(request())) == ["b"]
    assert cluster.allocate(claim_json(request())) == Refused(reason="cannot allocate all claims")


def test_allocate_takes_a_whole_device_once_in_the_cluster() -> None:
    cluster = _cluster(whole("a"), whole("b"))
    assert cluster.names(claim_json(request(memory="80Gi"))) == ["a"]
    assert cluster.names(claim_json(request(memory="1Gi"))) == ["b"]
    assert cluster.names(claim_json(request())) == []


def test_allocate_skips_a_whole_device_that_is_too_small() -> None:
    cluster = _cluster(whole("a", memory=10), whole("b", memory=40))
    assert cluster.names(claim_json(request(memory="20Gi"))) == ["b"]


def test_allocate_skips_devices_when_a_capacity_is_not_named_literally() -> None:
    cluster = _cluster(gpu("a"), whole("b"))
    asked = choice(capacity={"requests": {"gpuslice.io/memory": "1Gi"}})
    assert cluster.names(claim_json({"name": "gpu", "exactly": asked})) == []


def test_allocate_never_gives_one_request_a_device_twice() -> None:
    cluster = _cluster(gpu("a"), gpu("b"))
    assert cluster.names(claim_json(request(memory="1Gi", count=2))) == ["a", "b"]
    assert cluster.names(claim_json(request(memory="1Gi", count=3))) == []


def test_allocate_lets_requests_and_claims_share_a_device() -> None:
    cluster = _cluster(gpu("a"))
    first = claim_json(request("x", memory="1Gi"), request("y", memory="1Gi"), name="one")
    assert cluster.names(first, claim_json(request(memory="1Gi"), name="two")) == ["a", "a", "a"]


def test_allocate_goes_back_when_a_later_request_fails() -> None:
    cluster = _cluster(whole("small", memory=10), whole("large", memory=40))
    both = claim_json(request("any"), request("small", memory="10Gi"), request("x"))
    assert cluster.names(both) == []
    cluster = _cluster(whole("large", memory=40), whole("small", memory=10))
    assert cluster.names(claim_json(request("any"), request("large", memory="40Gi"))) == [
        "small",
        "large",
    ]


def test_allocate_gives_back_what_it_took_on_a_way_that_failed() -> None:
    cluster = _cluster(gpu("a", memory=10), gpu("b", memory=4))
    both = claim_json(request("some", memory="4Gi"), request("most", memory="10Gi"))
    assert cluster.names(both) == ["b", "a"]


def test_allocate_forgets_a_device_that_one_of_two_constraints_refused() -> None:
    cluster = _cluster(whole("a", numa=0), whole("b", numa=1, rack=1), whole("c", numa=1, rack=1))
    constraints = [{"matchAttribute": f"gpuslice.io/{name}"} for name in ("numa", "rack")]
    assert cluster.names(claim_json(request(count=2), constraints=constraints)) == ["b", "c"]


def test_allocate_gives_all_devices_or_none() -> None:
    cluster = _cluster(gpu("a"), gpu("b"), whole("monitor", kind="m"))
    everything = claim_json(request(memory="40Gi", allocationMode="All"))
    assert cluster.names(everything) == ["a", "b", "monitor"]
    cluster = _cluster(gpu("a"), gpu("b"))
    assert cluster.names(claim_json(request(memory="60Gi"))) == ["a"]
    assert cluster.names(everything) == []


def test_allocate_refuses_all_devices_when_there_are_none() -> None:
    assert _cluster().names(claim_json(request(allocationMode="All"))) == []


def test_allocate_prefers_the_first_alternative_that_fits() -> None:
    cluster = _cluster(gpu("a", memory=40))
    wish = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "large", **choice(memory="80Gi")},
            {"name": "small", **choice(memory="10Gi")},
        ],
    }
    answer = cluster.allocate(claim_json(wish))
    assert isinstance(answer, Allocated)
    (result,) = answer.allocations[0]["devices"]["results"]
    assert result["request"] == "gpu/small"


def test_allocate_takes_a_later_alternative_when_the_rest_needs_it() -> None:
    cluster = _cluster(whole("a"), whole("b"))
    wish = {
        "name": "some",
        "firstAvailable": [{"name": "two", **choice(count=2)}, {"name": "one", **choice()}],
    }
    assert cluster.names(claim_json(wish, request("other"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [("matchAttribute", ["b", "c"]), ("distinctAttribute", ["a", "b"])],
)
def test_allocate_holds_constraints_between_devices(constraint: str, expected: list[str]) -> None:
    cluster = _cluster(whole("a", numa=0), whole("b", numa=1), whole("c", numa=1))
    claim = claim_json(request(count=2), constraints=[{constraint: "gpuslice.io/numa"}])
    assert cluster.names(claim) == expected


def test_allocate_tells_distinct_devices_by_value() -> None:
    cluster = _cluster(gpu("a"))
    both = claim_json(
        request("x", memory="1Gi"),
        request("y", memory="1Gi"),
        constraints=[{"requests": ["x", "y"], "distinctAttribute": "gpuslice.io/uuid"}],
    )
    assert cluster.names(both) == []


def test_allocate_skips_devices_without_the_constrained_attribute() -> None:
    cluster = _cluster(whole("a"), whole("b", numa=1))
    claim = claim_json(request(), constraints=[{"matchAttribute": "gpuslice.io/numa"}])
    assert cluster.names(claim) == ["b"]


def test_allocate_avoids_tainted_devices_unless_tolerated() -> None:
    sick = {**gpu("a"), "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    told = {**gpu("b"), "taints": [{"key": "k", "effect": "None"}]}
    cluster = _cluster(sick, told)
    assert cluster.names(claim_json(request(memory="1Gi"))) == ["b"]
    tolerations = [{"key": "k", "operator": "Exists"}]
    answer = cluster.allocate(claim_json(request(memory="1Gi", tolerations=tolerations)))
    assert isinstance(answer, Allocated)
    (result,) = answer.allocations[0]["devices"]["results"]
    assert (result["device"], result["tolerations"]) == ("a", tolerations)


def test_allocate_lets_an_admin_see_devices_in_use_and_counts_nothing() -> None:
    cluster = _cluster(whole("a"))
    assert cluster.names(claim_json(request())) == ["a"]
    admin = claim_json(request(adminAccess=True))
    assert cluster.names(admin) == ["a"]
    assert cluster.names(admin) == ["a"]
    assert cluster.names(claim_json(request())) == []


def test_allocate_never_selects_what_a_selector_cannot_say() -> None:
    cluster = _cluster(gpu("a"), classes=[class_json(selector="broken")])
    with pytest.raises(
        AllocationError,
        match=r"class gpu: selector #0 on device \S+: CEL runtime error",
    ):
        cluster.allocate(claim_json(request()))


def test_allocate_refuses_more_devices_than_a_claim_can_have() -> None:
    cluster = _cluster(*(whole(f"d{number}") for number in range(40)))
    assert len(cluster.names(claim_json(request(count=32)))) == 32
    with pytest.raises(AllocationError, match="33 exceeds the claim limit of 32"):
        cluster.allocate(claim_json(request(count=33)))


def test_allocate_takes_the_alternative_that_stays_within_the_limit() -> None:
    cluster = _cluster(*(whole(f"d{number}") for number in range(40)))
    wish = {
        "name": "some",
        "firstAvailable": [{"name": "many", **choice(count=20)}, {"name": "few", **choice()}],
    }
    assert len(cluster.names(claim_json(request("base", count=20), wish))) == 21


def test_allocate_refuses_before_all_else_when_a_class_is_missing() -> None:
    broken = request("broken", count=33)
    wish = {"name": "gpu", "firstAvailable": [{"name": "b", **choice(deviceClassName="nope")}]}
    refusal = Refused(reason="request gpu/b: device class nope does not exist")
    assert _cluster(gpu("a")).allocate(claim_json(broken, wish)) == refusal


def test_allocate_ignores_other_nodes_and_old_generations() -> None:
    cluster = Cluster(
        slices=[
            slice_json(whole("far"), node="node-b"),
            slice_json(whole("gone"), generation=1),
            slice_json(whole("here"), generation=2),
        ]
    )
    assert cluster.names(claim_json(request())) == ["here"]


def test_allocate_visits_slices_by_name_and_waits_for_a_whole_pool() -> None:
    two: dict[str, Any] = {"resourceSliceCount": 2}
    later, first = slice_json(whole("b"), name="1", **two), slice_json(whole("a"), name="0", **two)
    assert Cluster(slices=[later, first]).names(claim_json(request(count=2))) == ["a", "b"]
    assert Cluster(slices=[later]).names(claim_json(request())) == []
    with pytest.raises(AllocationError, match="currently being updated"):
        Cluster(slices=[later]).allocate(claim_json(request(allocationMode="All")))


def test_allocate_refuses_a_pool_with_two_devices_of_one_name() -> None:
    answer = _cluster(whole("a"), whole("a")).allocate(claim_json(request()))
    assert answer == Refused(reason="invalid resource pools were encountered")


def test_allocate_hands_configs_through_with_classes_first() -> None:
    class_config = {"opaque": {"driver": "d", "parameters": {"a": 1}}}
    own = {"opaque": {"driver": "d", "parameters": {"b": 1}}}
    cluster = _cluster(gpu("a"), classes=[class_json(config=[class_config])])
    answer = cluster.allocate(
        claim_json(
            request("x", memory="1Gi"),
            request("y", memory="1Gi"),
            config=[{"requests": ["y"], **own}, own],
        )
    )
    assert isinstance(answer, Allocated)
    assert answer.allocations[0]["devices"]["config"] == [
        {"source": "FromClass", **class_config},
        {"source": "FromClaim", "requests": ["y"], **own},
        {"source": "FromClaim", **own},
    ]


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ({"consumesCounters": [{"counterSet": "x"}]}, "consumesCounters"),
        ({"bindingConditions": ["ready"]}, "bindingConditions"),
        ({"attributes": {"x": {"strings": ["a"]}}}, "unsupported value"),
    ],
)
def test_allocate_refuses_what_it_does_not_follow(device: Json, text: str) -> None:
    with pytest.raises(AllocationError, match=text):
        _cluster({**gpu("a"), **device}).allocate(claim_json(request()))
