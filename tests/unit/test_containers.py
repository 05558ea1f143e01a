"""Which pods are looked at, and which of their containers would get two shares under MPS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.claim import PodRef
from dra_driver.model.record import Record
from dra_driver.plan.containers import check_containers, pods_to_read
from tests import records
from tests.builders import claim_json, share_result
from tests.unit.planning import config, device, parameters, parsed, plan, request, share_claim

POD, OTHER = PodRef("web-0", "pod-0"), PodRef("web-1", "pod-1")


def share(number: int, *pods: PodRef, **how: Any) -> Record:
    return replace(records.record(number, **how), pods=pods)


def two_requests(*pods: PodRef, sharing: str = "MPS") -> Record:
    obj = claim_json(
        results=[share_result(device(n), request=f"r{n}", share=n) for n in (0, 1)],
        requests=[request(f"r{n}", compute="25", memory="6Gi") for n in (0, 1)],
        config=[config(parameters(sharing=sharing))],
    )
    return replace(plan(obj).record, pods=pods)


def use(claim: str, name: str | None = None) -> dict[str, str]:
    return {"name": claim} | ({"request": name} if name else {})


def container(name: str, *uses: dict[str, str]) -> dict[str, Any]:
    return {"name": name, "resources": {"claims": list(uses)}}


def pod(*containers: dict[str, Any], kind: str = "containers") -> dict[str, Any]:
    """Claim a is `claim-1`, made of a template; b is `claim-2`, named."""
    return {
        "metadata": {"name": "web-0", "uid": "pod-0"},
        "spec": {
            "resourceClaims": [
                {"name": "a", "resourceClaimTemplateName": "template"},
                {"name": "b", "resourceClaimName": "claim-2"},
                {"name": "unmade", "resourceClaimTemplateName": "template"},
            ],
            kind: list(containers),
        },
        "status": {
            "resourceClaimStatuses": [
                {"name": "a", "resourceClaimName": "claim-1"},
                {"name": "unmade"},
            ]
        },
    }


def test_no_pod_is_read_when_each_has_one_share() -> None:
    others = [
        share(2, OTHER),
        share(3, POD, kind=records.WHOLE),
        share(4, POD, setting="TimeSlicing"),
    ]
    assert pods_to_read(share(1, POD), [share(1, POD), *others]) == ()
    assert pods_to_read(share(1, POD, kind=records.WHOLE), [share(2, POD)]) == ()


def test_pods_are_read_when_they_have_another_claim_with_a_share() -> None:
    assert pods_to_read(share(1, POD, OTHER), [share(2, POD)]) == (POD,)


def test_pods_are_read_when_the_claim_has_shares_in_two_requests() -> None:
    assert pods_to_read(two_requests(POD, OTHER), []) == (POD, OTHER)
    assert pods_to_read(two_requests(POD, sharing="TimeSlicing"), []) == ()


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_container_with_shares_of_two_claims_is_refused(kind: str) -> None:
    body = pod(container("main", use("a"), use("b")), kind=kind)
    with pytest.raises(ClaimRejected) as caught:
        check_containers(body, share(1, POD), [share(2, POD)])
    assert caught.value.reason is Reason.NOT_SUPPORTED
    assert str(caught.value) == (
        "claim team-a/claim-1: container main of pod web-0 would get several MPS shares, request "
        "share of claim claim-1 and request share of claim claim-2, but it can use one: give each "
        "its own container (name the `request` in the container's resources.claims), or ask for "
        "whole GPUs"
    )


@pytest.mark.parametrize(
    "uses", [[use("a")], [use("a", "r0"), use("a", "r1")], [use("a", "r0"), use("a")]]
)
def test_container_with_two_requests_of_one_claim_is_refused(uses: list[dict[str, str]]) -> None:
    with pytest.raises(ClaimRejected, match="request r0 of claim claim-1 and request r1 of claim"):
        check_containers(pod(container("main", *uses)), two_requests(POD), [])


@pytest.mark.parametrize(
    "containers",
    [
        [container("one", use("a")), container("two", use("b"))],
        [container("one", use("a"), use("a", "share"))],
        [container("one", use("a"), use("b", "another"))],
        [container("one", use("a"), use("unmade"), use("unknown"))],
        [{"name": "plain"}],
    ],
)
def test_containers_with_one_share_each_are_fine(containers: list[dict[str, Any]]) -> None:
    check_containers(pod(*containers), share(1, POD), [share(2, POD)])


def test_container_may_have_a_share_beside_what_is_none() -> None:
    body = pod(container("main", use("a"), use("b")))
    check_containers(body, share(1, POD), [share(2, POD, kind=records.WHOLE)])
    check_containers(body, share(1, POD), [share(2, POD, setting="TimeSlicing")])
    namesake = share(2, POD)
    elsewhere = replace(namesake, claim=replace(namesake.claim, namespace="team-b"))
    check_containers(body, share(1, POD), [elsewhere])


def test_claim_is_not_refused_for_a_container_that_does_not_use_it() -> None:
    body = pod(container("main", use("a"), use("b")))
    check_containers(body, share(3, POD), [share(1, POD), share(2, POD)])


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "containers", "resources", "claims", "name", "status"]), inner
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["spec", "status", "metadata"]), _JSON))
def test_check_takes_whatever_stands_in_place_of_a_pod(body: dict[str, Any]) -> None:
    check_containers(body, share(1, POD), [share(2, POD)])


def reserved(*consumers: Any) -> dict[str, Any]:
    obj = share_claim()
    obj["status"]["reservedFor"] = list(consumers)
    return obj


def test_claim_tells_the_pods_that_it_is_reserved_for() -> None:
    web = [{"resource": "pods", "name": f"web-{n}", "uid": f"pod-{n}"} for n in (1, 0)]
    odd = [
        {"resource": "jobs", "name": "x", "uid": "y"},
        {"resource": "pods", "name": 1},
        "rubbish",
    ]
    foreign = {"apiGroup": "apps", "resource": "pods", "name": "x", "uid": "y"}
    obj = reserved(*web, *odd, foreign, web[0])
    assert parsed(obj).consumers == (POD, OTHER)
    assert plan(obj).record.pods == (POD, OTHER)


def test_claim_without_a_share_under_mps_costs_no_look_at_its_pods() -> None:
    obj = reserved({"resource": "pods", "name": POD.name, "uid": POD.uid})
    obj["status"]["allocation"]["devices"]["config"] = [config(parameters(sharing="TimeSlicing"))]
    record = plan(obj).record
    assert record.pods == (POD,)
    assert pods_to_read(record, [replace(records.record(2), pods=(POD,))]) == ()
    assert parsed(share_claim()).consumers == ()
