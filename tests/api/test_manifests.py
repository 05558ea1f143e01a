"""The shipped manifests on real API servers, rendered as by `kubectl apply -k`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import manifests
from tests.api.manifest_builds import build, overlay, ready_for_pods, try_out
from tests.arch.sources import ROOT
from tests.kube.build import KUBERNETES_VERSION
from tests.kube.client import ApiError
from tests.kube.harness import DEFAULT, ApiServer
from tests.manifests import EXAMPLES, FOLDER, Document, of_kind

KINDS = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "DaemonSet",
    "DeviceClass",
    "Namespace",
    "ResourceQuota",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
PLUGIN, MPSD = {"gpuslice-plugin"}, {"gpuslice-mpsd"}
NEEDS_GATES = {"capacity", "extendedResourceName"}
"""Fields that 1.34 drops unless its gates for sharing devices are on."""


@pytest.fixture(params=["api_default", "api_gates", "api_newest"])
def server(request: pytest.FixtureRequest) -> ApiServer:
    found: ApiServer = request.getfixturevalue(request.param)
    # A dry run puts nothing into a namespace that is not there.
    namespaces = ({"metadata": {"name": "default"}}, *of_kind("Namespace", manifests.base()))
    for each in namespaces:
        ready_for_pods(found.admin, {"apiVersion": "v1", "kind": "Namespace", **each})
    return found


@pytest.mark.parametrize("folder", ["base", "overlays/simulated", "overlays/simulated-mps"])
def test_server_keeps_all_of_a_build(server: ApiServer, kubectl: Path, folder: str) -> None:
    documents = build(kubectl, FOLDER / folder)
    assert {each["kind"] for each in documents} == KINDS
    names = {each["metadata"]["name"] for each in of_kind("DaemonSet", documents)}
    assert names == (PLUGIN if folder == "overlays/simulated" else PLUGIN | MPSD)
    _account(server)
    for document in (*documents, *_pods(documents)):
        assert try_out(server.admin, document) == [], document["metadata"]["name"]


def test_server_keeps_all_of_the_components_if_it_can(
    server: ApiServer, kubectl: Path, tmp_path: Path
) -> None:
    components = sorted(path.name for path in (FOLDER / "components").iterdir())
    assert components == [
        "checkpoint-archives",
        "checkpoint-hook",
        "checkpoint-hook-off",
        "checkpoint-rights",
        "extended-resource",
        "require-memory",
    ]
    plain = build(kubectl, FOLDER / "base")
    documents = build(kubectl, overlay(tmp_path, components=components))
    added = [each for each in documents if each not in plain]
    names = {(each["kind"], each["metadata"]["name"]) for each in added}
    assert names == {
        ("ClusterRole", "gpuslice-checkpoint"),
        ("ClusterRole", "gpuslice-checkpointer"),
        ("ClusterRoleBinding", "gpuslice-checkpoint"),
        ("DaemonSet", "gpuslice-plugin"),
        ("DeviceClass", "gpu.gpuslice.io"),
        ("Role", "gpuslice-plugin-exec"),
        ("ValidatingAdmissionPolicy", "gpuslice-require-memory"),
        ("ValidatingAdmissionPolicyBinding", "gpuslice-require-memory"),
    }
    _account(server)
    dropped = [path for each in (*added, *_pods(documents)) for path in try_out(server.admin, each)]
    assert dropped == _without_gates(server, [".spec.extendedResourceName"])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_server_keeps_all_of_an_example_if_it_can(server: ApiServer, path: Path) -> None:
    documents = manifests.read(path)
    for each in of_kind("Namespace", documents):
        ready_for_pods(server.admin, each)
    dropped = {field for each in documents for field in try_out(server.admin, each)}
    capacities = {each for each in _fields(documents) if each.endswith(".capacity")}
    assert sorted(dropped) == _without_gates(server, sorted(capacities))


def test_server_refuses_what_does_not_fit(server: ApiServer) -> None:
    class_ = of_kind("DeviceClass", manifests.base())[0]
    (selector,) = class_["spec"]["selectors"]
    for wrong, text in (
        (class_["spec"] | {"extra": 1}, "extra"),
        ({"selectors": [{"cel": {"expression": selector["cel"]["expression"] + " &&"}}]}, "cel"),
    ):
        with pytest.raises(ApiError, match=text):
            try_out(server.admin, class_ | {"spec": wrong})


def test_server_keeps_all_of_a_build_for_another_driver_and_kubelet(
    server: ApiServer, kubectl: Path, tmp_path: Path
) -> None:
    rendered = tmp_path / "rendered"
    options = ["--driver-name", "gpu.example.com", "--kubelet-root", "/var/lib/k0s/kubelet"]
    subprocess.run([ROOT / "hack/render", *options, rendered], check=True, capture_output=True)
    documents = build(kubectl, rendered / "overlays/simulated")
    _account(server)
    for document in (*documents, *_pods(documents)):
        assert try_out(server.admin, document) == [], document["metadata"]["name"]


def test_settings_of_an_overlay_roll_the_pods(kubectl: Path, tmp_path: Path) -> None:
    names = {_settings_name(build(kubectl, FOLDER / "base"))}
    for level in ("debug", "error"):
        folder = overlay(
            tmp_path / level,
            configMapGenerator=[
                {
                    "name": "gpuslice-settings",
                    "namespace": "gpuslice",
                    "behavior": "replace",
                    "literals": [f"settings.yaml=log-level: {level}"],
                }
            ],
        )
        names.add(_settings_name(build(kubectl, folder)))
    assert len(names) == 3


def _settings_name(documents: tuple[Document, ...]) -> str:
    (settings,) = of_kind("ConfigMap", documents)
    used = {
        volume["configMap"]["name"]
        for daemon_set in of_kind("DaemonSet", documents)
        for volume in manifests.pod_spec(daemon_set)["volumes"]
        if "configMap" in volume
    }
    assert used == {settings["metadata"]["name"]}
    return str(settings["metadata"]["name"])


def _pods(documents: tuple[Document, ...]) -> list[Document]:
    """Pods as the DaemonSets make them, which are checked more strictly than a template."""
    pods = []
    for daemon_set in of_kind("DaemonSet", documents):
        template = daemon_set["spec"]["template"]
        named = {"name": daemon_set["metadata"]["name"], "namespace": "gpuslice"}
        metadata = {**template["metadata"], **named}
        pods.append(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )
    return pods


def _account(server: ApiServer) -> None:
    (account,) = of_kind("ServiceAccount", manifests.base())
    server.admin.apply(account)


def _without_gates(server: ApiServer, fields: list[str]) -> list[str]:
    dropping = server.version == KUBERNETES_VERSION and server.profile == DEFAULT
    return fields if dropping else []


def _fields(documents: tuple[Document, ...]) -> set[str]:
    found: set[str] = set()
    for document in documents:
        _collect(document, "", found)
    return found


def _collect(value: object, where: str, found: set[str]) -> None:
    found.add(where)
    match value:
        case dict():
            for key, part in value.items():
                _collect(part, f"{where}.{key}", found)
        case list():
            for part in value:
                _collect(part, f"{where}[]", found)
        case _:
            pass
