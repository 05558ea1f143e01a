from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dra_driver.errors import ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.claim import ConfigSource
from dra_driver.plan.claims import parse_claim
from tests.builders import DRIVER, NODE, claim_json, claim_uid, ref, share_result
from tests.unit.planning import config, device, parameters, parsed, request, whole_result


def refusal(obj: dict[str, Any]) -> ClaimError:
    with pytest.raises(ClaimError) as caught:
        parsed(obj)
    return caught.value


def test_parse_claim_gives_result_when_a_share_is_allocated() -> None:
    (result,) = parsed(claim_json(results=[share_result(device())])).results
    assert result.request == "gpu"
    assert result.pool == NODE
    assert result.share_id == "00000001-0000-4000-a000-000000000001"
    assert result.consumed == {"compute": 25, "memory": 6 << 30, "shares": 1}
    assert result.asked == {"compute", "memory"}
    assert not result.admin_access


def test_parse_claim_rejects_when_the_claim_was_replaced() -> None:
    error = refusal(claim_json(2, results=[]))
    assert isinstance(error, ClaimRejected)
    assert error.reason is Reason.CLAIM_REPLACED
    assert str(error) == (
        f"claim team-a/claim-1 with UID {claim_uid(1)} was replaced: the claim of that name now "
        f"has UID {claim_uid(2)}; delete the pod that was made for the old one"
    )


@pytest.mark.parametrize("status", [{}, {"allocation": None}, None])
def test_parse_claim_is_not_ready_when_the_claim_is_not_allocated(status: Any) -> None:
    error = refusal(claim_json() | {"status": status})
    assert isinstance(error, NotReady)
    assert error.reason is Reason.NOT_ALLOCATED
    assert "claim team-a/claim-1 is not allocated" in str(error)


def test_parse_claim_is_not_ready_when_the_answer_is_a_status_object() -> None:
    error = refusal({"kind": "Status", "metadata": {}, "status": "Failure", "code": 403})
    assert isinstance(error, NotReady)
    assert '(kind "Status")' in str(error)


def test_parse_claim_leaves_out_what_is_of_another_driver() -> None:
    foreign = {"request": "nic", "driver": "nic.example", "pool": 7, "device": None}
    other = config({"anything": [1]}, driver="nic.example")
    claim = parsed(claim_json(results=[foreign, share_result(device())], config=[other]))
    assert [each.device for each in claim.results] == [device()]
    assert claim.configs == ()


def test_parse_claim_rejects_when_a_device_is_of_another_node() -> None:
    error = refusal(claim_json(results=[share_result(device()) | {"pool": "node-b"}]))
    assert isinstance(error, ClaimRejected)
    assert f"holds device {device()} of pool node-b, but this node is node-a" in str(error)


def test_parse_claim_orders_configs_class_before_claim_whatever_the_list_order() -> None:
    entries = [
        config(parameters(maxCompute=1)),
        config(parameters(maxCompute=2), source="FromClass"),
        config({}, driver="nic.example"),
        config(parameters(maxCompute=3), "gpu"),
        config(parameters(maxCompute=4), source="FromClass"),
    ]
    claim = parsed(claim_json(results=[share_result(device())], config=entries))
    assert [(each.path, each.parameters["maxCompute"]) for each in claim.configs] == [
        ("class config 0", 2),
        ("class config 1", 4),
        ("claim config 0", 1),
        ("claim config 2", 3),
    ]
    assert [each.source for each in claim.configs][1:3] == [ConfigSource.CLASS, ConfigSource.CLAIM]
    assert claim.configs[3].requests == ("gpu",)


def test_parse_claim_takes_null_requests_as_all_when_1_34_0_wrote_them() -> None:
    entry = config(parameters(), source="FromClass") | {"requests": None}
    (found,) = parsed(claim_json(results=[share_result(device())], config=[entry])).configs
    assert found.requests == ()
    assert found.covers("gpu")


@pytest.mark.parametrize(
    ("spelled", "amount"),
    [
        ("80Gi", 80 << 30),
        ("81920Mi", 80 << 30),
        ("85899345920", 80 << 30),
        (85899345920, 80 << 30),
        ("4G", 4 * 10**9),
        ("1536Mi", 1536 << 20),
        ("1.5Gi", 1536 << 20),
        ("1e9", 10**9),
        ("500m", Decimal("0.5")),
    ],
)
def test_parse_claim_reads_amounts_in_every_spelling(spelled: Any, amount: Any) -> None:
    result = share_result(device()) | {"consumedCapacity": {"memory": spelled}}
    assert parsed(claim_json(results=[result])).results[0].consumed == {"memory": amount}


def test_parse_claim_reads_names_when_they_are_qualified_by_the_driver() -> None:
    result = share_result(device()) | {"consumedCapacity": {f"{DRIVER}/compute": "25"}}
    assert parsed(claim_json(results=[result])).results[0].consumed == {"compute": 25}


def test_parse_claim_finds_what_was_asked_in_the_chosen_subrequest() -> None:
    spec = [
        {
            "name": "gpu",
            "firstAvailable": [
                {
                    "name": "big",
                    "deviceClassName": "x",
                    "capacity": {"requests": {"memory": "9Gi"}},
                },
                {"name": "any", "deviceClassName": "x", "capacity": None},
            ],
        },
        request("two", compute="5"),
    ]
    names = ("gpu/big", "gpu/any", "two")
    results = [share_result(device(), request=name, share=i) for i, name in enumerate(names)]
    claim = parsed(claim_json(results=results, requests=spec))
    assert [set(each.asked) for each in claim.results] == [{"memory"}, set(), {"compute"}]
    assert [each.main_request for each in claim.results] == ["gpu", "gpu", "two"]


def test_parse_claim_takes_given_as_asked_when_the_spec_does_not_show_the_request() -> None:
    claim = parsed(claim_json(results=[share_result(device())], requests=[]))
    assert claim.results[0].asked == {"compute", "memory", "shares"}


def test_parse_claim_reads_extended_resource_claims() -> None:
    name = "container-0-request-0"
    claim = parsed(claim_json(results=[whole_result(name)], requests=[request(name)]))
    assert claim.results[0].request == name
    assert claim.results[0].asked == frozenset()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"results": {"a": 1}},
            'status.allocation.devices.results: {"a": 1} is not supported: write a list',
        ),
        (
            {"results": ["x"]},
            'status.allocation.devices.results[0]: "x" is not supported: write an object',
        ),
        (
            {"results": [{"driver": DRIVER, "pool": NODE, "device": ""}]},
            "status.allocation.devices.results[0].request: null is not supported",
        ),
        (
            {"results": [share_result("d") | {"consumedCapacity": {"memory": "6GB"}}]},
            'results[0].consumedCapacity[memory]: "6GB" is not supported: write a quantity',
        ),
        (
            {"results": [share_result("d") | {"consumedCapacity": {"memory": "1e999999999"}}]},
            'consumedCapacity[memory]: "1e999999999" is not supported',
        ),
        (
            {"results": [share_result("d") | {"consumedCapacity": {"memory": True}}]},
            "consumedCapacity[memory]: true is not supported",
        ),
        (
            {"results": [share_result("d") | {"consumedCapacity": {"memory": 1.5}}]},
            "consumedCapacity[memory]: 1.5 is not supported",
        ),
        (
            {"results": [share_result("d") | {"consumedCapacity": {"memory": "-1"}}]},
            'consumedCapacity[memory]: "-1" is not supported',
        ),
        (
            {"results": [share_result("d") | {"shareID": 5}]},
            "results[0].shareID: 5 is not supported: write a string of printable characters",
        ),
        (
            {"results": [share_result("d") | {"shareID": "s\ud800"}]},
            r'results[0].shareID: "s\ud800" is not supported: write a string of printable',
        ),
        (
            {"config": [config(["a"])]},  # type: ignore[arg-type]
            'claim config 0, field parameters: ["a"] is not supported: write an object',
        ),
        (
            {"config": [config({}) | {"source": "FromMars"}]},
            'config[0].source: "FromMars" is not supported: write FromClass or FromClaim',
        ),
        (
            {"config": [config({}) | {"requests": [None]}]},
            "claim config 0, field requests: null is not supported",
        ),
        ({"requests": [{"name": 5}]}, "spec.devices.requests[0].name: 5 is not supported"),
    ],
)
def test_parse_claim_names_the_place_when_a_part_is_malformed(
    changes: dict[str, Any], text: str
) -> None:
    error = refusal(claim_json(**changes))
    assert isinstance(error, ClaimRejected)
    assert error.reason is Reason.INVALID_CONFIG
    assert str(error).startswith("claim team-a/claim-1: ")
    assert text in str(error)


def test_parse_claim_gives_no_results_when_none_is_of_this_driver() -> None:
    claim = parse_claim(claim_json(), ref(), driver="other.example", node=NODE)
    assert claim.results == ()
