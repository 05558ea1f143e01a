"""Claims that ask for more than a GPU enforces, or for what its driver cannot do."""

from pathlib import Path

import pytest

from tests.cluster import deployed
from tests.cluster.deployed import attribute, set_simulated
from tests.cluster.life_site import Site, part
from tests.cluster.mps_fixtures import deploy_mps, mps_document
from tests.cluster.mps_node import TIMEOUT_S, MpsNode, gpu_of
from tests.cluster.mps_tenants import of_tier, sockets_inside, with_config
from tests.kube.client import Json
from tests.kube.pods import wait_for_pod

pytestmark = pytest.mark.timeout(300, func_only=True)

_SHARE = part(25, "6Gi")


def test_a_claim_of_a_stronger_tier_than_its_gpu_enforces_is_refused_with_the_reason(
    mps_site: Site, mps_node: MpsNode
) -> None:
    cluster = mps_node.cluster
    document, unproved = mps_document(cluster), f"GPU-{cluster.cell.id}-unproved"
    document["gpus"].append({"uuid": unproved, "mps": {"controlOnly": False}})
    set_simulated(cluster, document)
    deployed.wait_published(
        cluster,
        until=lambda devices: "cooperative" in {attribute(each, "tier") for each in devices},
    )
    weak = of_tier(_SHARE, "cooperative")
    mps_site.create("strict", with_config(weak, minimumTier="standard"))
    content = mps_site.start("content", with_config(weak, minimumTier="cooperative"))
    assert gpu_of(content) == unproved
    # That is why it is weaker.
    assert "control_privileged" in sockets_inside(content)
    mps_site.wait_event(
        "strict",
        "minimumTier: standard is more than",
        "which is cooperative",
        "did not connect through the control socket alone",
    )
    assert mps_site.phase("strict") == "Pending"
    mps_site.unchanged(content)


def test_shares_are_refused_naming_the_flag_where_mps_serves_one_user_and_none_is_named(
    mps_site: Site, mps_node: MpsNode, mps_programs: Path
) -> None:
    cluster = mps_node.cluster
    deploy_mps(cluster, mps_programs, settings={"mps-single-uid": ""})
    try:
        mps_site.create("tenant", _SHARE)
        mps_site.wait_event("tenant", "serves one UID only", "--mps-single-uid N", "555 or later")
        assert mps_site.phase("tenant") == "Pending"
    finally:
        deploy_mps(cluster, mps_programs)


def test_a_container_with_two_shares_is_refused_and_two_containers_with_one_each_are_not(
    mps_site: Site, mps_node: MpsNode
) -> None:
    mps_site.create("greedy", _SHARE, _SHARE)
    mps_site.create("modest", _SHARE, _SHARE, change=_with_a_container_for_each)
    admin, path = mps_node.cluster.admin, mps_site.pods
    wait_for_pod(admin, "modest", namespace=mps_site.namespace, timeout_s=TIMEOUT_S)
    statuses = admin.get(f"{path}/modest")["status"]["containerStatuses"]
    assert [each["ready"] for each in statuses] == [True, True]
    mps_site.wait_event("greedy", "container main of pod greedy would get several MPS shares")
    assert mps_site.phase("greedy") == "Pending"


def _with_a_container_for_each(pod: Json) -> None:
    (first,) = pod["spec"]["containers"]
    claims = first["resources"]["claims"]
    second = {**first, "name": "second", "resources": {"claims": claims[1:]}}
    first["resources"] = {"claims": claims[:1]}
    pod["spec"]["containers"] = [first, second]
