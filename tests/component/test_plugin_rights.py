"""The shipped rights are those that the requests of the driver need, and no others."""

from __future__ import annotations

import inspect
from contextlib import closing, suppress
from itertools import product
from pathlib import Path

from dra_driver.adapters.kube import KubeApi, connect
from dra_driver.errors import NotFound
from dra_driver.model.claim import PodRef
from dra_driver.sim.api_http import Request
from dra_driver.sim.api_resources import RESOURCES
from dra_driver.sim.api_server import SimApiServer
from tests import builders, manifests
from tests.contract.kube_suite import RealClock, deadline
from tests.manifests import of_kind

CLAIM = builders.ref(1)
GROUPS = {each.plural: each.api_version.rpartition("/")[0] for each in RESOURCES}
SLICE = {
    "metadata": {"name": "slice"},
    "spec": {
        "driver": builders.DRIVER,
        "nodeName": builders.NODE,
        "pool": {"name": builders.NODE, "generation": 1, "resourceSliceCount": 1},
    },
}

Right = tuple[str, str, str]


def test_plugin_may_do_what_it_does_and_nothing_else(tmp_path: Path) -> None:
    with SimApiServer() as server:
        server.create_node(builders.NODE)
        server.create("resourceclaims", builders.claim_json(1), namespace=CLAIM.namespace)
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        with closing(
            connect(
                kubeconfig=kubeconfig, driver=builders.DRIVER, node=builders.NODE, clock=RealClock()
            )
        ) as api:
            assert _ask_for_everything(api) == _abilities(api)
        assert _granted() == {_right(each) for each in server.requests()} - {("", "version", "get")}


def _ask_for_everything(api: KubeApi) -> set[str]:
    """Make each request that the driver can make, and give the names of the methods."""
    api.probe.server_version()
    api.probe.node_uid()
    api.probe.dry_run_slice(SLICE)
    stored = api.slices.create_slice(SLICE)
    stored = api.slices.replace_slice("slice", stored)
    _, version = api.slices.list_slices()
    api.slices.watch_slices(version, 1.0).close()
    metadata = stored["metadata"]
    api.slices.delete_slice(
        "slice", uid=metadata["uid"], resource_version=metadata["resourceVersion"]
    )
    api.claims.get_claim(CLAIM.namespace, CLAIM.name, deadline(10.0))
    with suppress(NotFound):
        api.pods.get_pod(CLAIM.namespace, "pod", deadline(10.0))
    api.events.emit(CLAIM, reason="Test", text="test")
    api.pod_events.emit_pod(CLAIM.namespace, PodRef("pod", "uid"), reason="Test", text="test")
    return {
        "server_version",
        "node_uid",
        "dry_run_slice",
        "create_slice",
        "replace_slice",
        "list_slices",
        "watch_slices",
        "delete_slice",
        "get_claim",
        "get_pod",
        "emit",
        "emit_pod",
    }


def _abilities(api: KubeApi) -> set[str]:
    """Names of all that can be asked for, so that none is forgotten above."""
    parts = (api.probe, api.slices, api.claims, api.pods, api.events, api.pod_events)
    found = [inspect.getmembers(part, inspect.ismethod) for part in parts]
    return {name for methods in found for name, _ in methods if not name.startswith("_")}


def _right(request: Request) -> Right:
    # Reading /version is everybody's right.
    return GROUPS.get(request.resource, ""), request.resource, request.verb


def _granted() -> set[Right]:
    (role,) = of_kind("ClusterRole", manifests.base())
    return {
        right
        for rule in role["rules"]
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }
