"""Claims that ask for more than a GPU enforces, or for what its driver cannot do."""

from pathlib import Path

from tests.cluster import deployed
from tests.cluster.deployed import attribute, set_simulated
from tests.cluster.life_site import Site, part
from tests.cluster.mps_fixtures import GPUS, deploy_mps, mps_document
from tests.cluster.mps_node import MpsNode, gpu_of
from tests.cluster.mps_tenants import of_tier, sockets_inside, with_config
from tests.kube.client import Json

_SHARE = part(25, "6Gi")
_UNPROVED: Json = {"uuid": "GPU-controlonly-failed", "mps": {"controlOnly": False}}


def test_a_claim_of_a_stronger_tier_than_its_gpu_enforces_is_refused_with_the_reason(
    mps_site: Site, mps_node: MpsNode
) -> None:
    document = mps_document()
    document["gpus"].append(_UNPROVED)
    set_simulated(mps_node.cluster, document)
    deployed.wait_published(
        mps_node.cluster,
        gpus=GPUS + 1,
        until=lambda devices: "cooperative" in {attribute(each, "tier") for each in devices},
    )
    weak = of_tier(_SHARE, "cooperative")
    mps_site.create("strict", with_config(weak, minimumTier="standard"))
    content = mps_site.start("content", with_config(weak, minimumTier="cooperative"))
    assert gpu_of(content) == _UNPROVED["uuid"]
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
