"""What the shipped admission policies refuse, on real API servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import manifests
from tests.api.manifest_builds import build, overlay
from tests.api.plugin_identity import SLICES, new_node, plugin_token, slice_of
from tests.kube.client import ApiError, Client, Json
from tests.kube.harness import ApiServer
from tests.kube.process import wait_until
from tests.manifests import FOLDER

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"


@pytest.fixture(params=["api_default", "api_gates"])
def server(request: pytest.FixtureRequest) -> ApiServer:
    found: ApiServer = request.getfixturevalue(request.param)
    return found


class Nodes:
    """Two nodes, the plugin of the first, and an administrator."""

    def __init__(self, server: ApiServer) -> None:
        self.own, self.other = new_node(server), new_node(server)
        self.plugin = server.client(plugin_token(server, node=self.own))
        self.admin = server.admin


@pytest.fixture
def nodes(server: ApiServer) -> Nodes:
    return Nodes(server)


def test_plugin_creates_changes_and_deletes_slices_of_its_node(nodes: Nodes) -> None:
    stored = nodes.plugin.create(SLICES, slice_of(nodes.own))
    stored["spec"]["devices"].append({"name": "gpu-1"})
    changed = nodes.plugin.replace(_path(stored), stored)
    assert len(changed["spec"]["devices"]) == 2
    nodes.plugin.delete(_path(stored))


def test_plugin_touches_no_slices_of_another_node(nodes: Nodes) -> None:
    text = f"the plugin of node {nodes.own} may not write slices of node {nodes.other}"
    stored = nodes.admin.create(SLICES, slice_of(nodes.other))
    with pytest.raises(ApiError, match=text):
        nodes.plugin.create(SLICES, slice_of(nodes.other))
    with pytest.raises(ApiError, match=text):
        nodes.plugin.replace(_path(stored), stored)
    with pytest.raises(ApiError, match=text):
        nodes.plugin.delete(_path(stored))
    with pytest.raises(ApiError, match="cannot deletecollection"):
        nodes.plugin.delete(SLICES, fieldSelector=f"spec.nodeName={nodes.other}")
    assert nodes.admin.get(_path(stored))["spec"] == stored["spec"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"nodeName": None, "allNodes": True}, "may not write slices of node"),
        (
            {"pool": {"name": "other", "generation": 9, "resourceSliceCount": 1}},
            "slices of pool other",
        ),
        ({"driver": "gpu.example.com"}, "driver gpuslice.io only, not of gpu.example.com"),
    ],
    ids=["all-nodes", "pool", "driver"],
)
def test_plugin_speaks_for_its_node_and_its_driver_only(
    nodes: Nodes, change: dict[str, Any], text: str
) -> None:
    spec = {key: value for key, value in slice_of(nodes.own, **change)["spec"].items() if value}
    with pytest.raises(ApiError, match=text):
        nodes.plugin.create(SLICES, slice_of(nodes.own) | {"spec": spec})


def test_plugin_may_write_nothing_with_a_token_of_no_node(server: ApiServer) -> None:
    loose = server.client(plugin_token(server, node=None))
    with pytest.raises(ApiError, match="not bound to a node; run it as a Pod of its DaemonSet"):
        loose.create(SLICES, slice_of(new_node(server)))


def test_others_write_slices_as_before(nodes: Nodes) -> None:
    stored = nodes.admin.create(SLICES, slice_of(nodes.other, driver="gpu.example.com"))
    nodes.admin.delete(_path(stored))


def test_policy_follows_the_plugin_to_another_namespace(
    server: ApiServer, kubectl: Path, tmp_path: Path
) -> None:
    documents = build(kubectl, overlay(tmp_path, namespace="gpus"))
    assert {
        each["metadata"]["namespace"] for each in documents if "namespace" in each["metadata"]
    } == {"gpus"}
    own = new_node(server)
    plugin = server.client(plugin_token(server, node=own, documents=documents))
    plugin.delete(_path(plugin.create(SLICES, slice_of(own))))
    with pytest.raises(ApiError, match="may not write slices of node"):
        plugin.create(SLICES, slice_of(new_node(server)))


@pytest.fixture
def strict(api_gates: ApiServer) -> Client:
    """An administrator where namespace ``strict`` refuses compute without memory."""
    admin = api_gates.admin
    labels = {"resource.kubernetes.io/admin-access": "true"}
    space = {"metadata": {"name": "strict", "labels": labels}}
    admin.apply({"apiVersion": "v1", "kind": "Namespace", **space})
    for each in manifests.read(FOLDER / "components/require-memory/policy.yaml"):
        if each["kind"].endswith("Binding"):
            # The server is shared with tests that make such claims.
            name = {"kubernetes.io/metadata.name": "strict"}
            each["spec"]["matchResources"] = {"namespaceSelector": {"matchLabels": name}}
        admin.apply(each)
    wait_until(
        lambda: "" if _refusal(admin, _claim(compute="25")) else "it lets a claim pass",
        waiting_for="the policy on claims",
    )
    return admin


@pytest.mark.parametrize("name", ["compute", "gpuslice.io/compute"])
def test_component_refuses_compute_without_memory(strict: Client, name: str) -> None:
    refusal = _refusal(strict, _claim(**{name: "25"}))
    assert "request gpu asks for compute without memory" in refusal
    assert "add capacity.requests.memory, such as 6Gi" in refusal


@pytest.mark.parametrize("path", manifests.EXAMPLES, ids=lambda path: path.stem)
def test_component_refuses_one_example_only(strict: Client, path: Path) -> None:
    for each in manifests.read(path):
        if each["kind"].startswith("ResourceClaim"):
            refused = bool(_refusal(strict, each))
            assert refused == (path.stem == "compute-only")


def test_component_refuses_an_alternative_too(strict: Client) -> None:
    choice = _request(compute="25")
    first = {"name": "whole", "deviceClassName": "gpu.gpuslice.io"}
    requests = [{"name": "gpu", "firstAvailable": [first, {"name": "part", **choice}]}]
    assert "request gpu asks for compute without memory" in _refusal(strict, _of(requests))


def test_component_leaves_other_drivers_alone(strict: Client) -> None:
    foreign = _request(compute="25") | {"deviceClassName": "gpu.example.com"}
    assert not _refusal(strict, _of([{"name": "gpu", "exactly": foreign}]))
    assert not _refusal(strict, _claim(compute="25", memory="6Gi"))
    assert not _refusal(strict, _of([{"name": "gpu", "exactly": {"deviceClassName": "a"}}]))


def _refusal(admin: Client, document: Json) -> str:
    """What the policy says of a claim or template; empty where it says nothing."""
    path = (CLAIMS if document["kind"] == "ResourceClaim" else TEMPLATES).format("strict")
    body = document | {"metadata": {"generateName": "claim-"}}
    try:
        admin.create(path, body, dryRun="All")
    except ApiError as error:
        if "gpuslice-require-memory" not in error.message:
            raise
        return error.message
    return ""


def _claim(**amounts: str) -> Json:
    return _of([{"name": "gpu", "exactly": _request(**amounts)}])


def _request(**amounts: str) -> Json:
    return {"deviceClassName": "slice.gpuslice.io", "capacity": {"requests": amounts}}


def _of(requests: list[Json]) -> Json:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "spec": {"devices": {"requests": requests}},
    }


def _path(stored: Json) -> str:
    return f"{SLICES}/{stored['metadata']['name']}"
