"""A person restores a checkpoint."""

from __future__ import annotations

import json
import tarfile
from typing import Any

import pytest
import yaml

from dra_driver.model.device import GpuUuid
from dra_driver.model.manifest import Manifest, ManifestGpu
from dra_driver.plan.manifest import manifest_json
from tests import builders
from tests.component.people import Site, run, site
from tests.fakes.archives import write_checkpoint
from tests.fakes.people_cluster import plugin_pod
from tests.fakes.people_node import operation

__all__ = ["run", "site"]

GPU = GpuUuid(builders.uuid(0))
MANIFEST = manifest_json(
    Manifest(
        node="node-a",
        driver_version="580.1",
        cuda_version="13.0",
        library="",
        gpus=(ManifestGpu(uuid=GPU, product_name="H100"),),
    )
)
IMAGE = "localhost/checkpoint/team/trainer/main:20261130170010"


def objects(text: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_image_goes_into_the_nodes_containerd_and_its_objects_are_printed(site: Site) -> None:
    site.node.operations.append(operation(manifest=MANIFEST))
    ended = site.ask("restore", str(site.archive), "--import", "--node", "node-a")
    assert ended.status == 0
    (imported,) = site.node.imported
    assert imported == {
        "path": str(site.archive),
        "--image": IMAGE,
        "--container": "main",
        "--ctr": "ctr",
        "--containerd-socket": "/run/containerd/containerd.sock",
    }
    found = objects(ended.out)
    assert sorted(found) == ["Pod", "ResourceClaim"]
    claim, pod = found["ResourceClaim"], found["Pod"]
    assert GPU in str(claim["spec"]["devices"]["requests"])
    (config,) = claim["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"]["restoreFrom"] == "op-1"
    assert pod["metadata"] == {"name": "trainer-restored", "namespace": "team"}
    assert pod["spec"]["containers"][0]["image"] == IMAGE
    assert "the very same GPUs" in ended.err
    assert f"image {IMAGE} is in the node's containerd" in ended.err


def test_names_that_are_given_are_used(site: Site) -> None:
    site.node.operations.append(operation("mine", manifest=MANIFEST, pod="other"))
    ended = site.ask(
        *("restore", str(site.archive), "--import", "--node", "node-a", "--operation", "mine"),
        *("--image", "registry.example.com:5000/a/b:2", "--name", "second", "-n", "else"),
        *("-c", "worker", "--ctr", "/opt/k3s/ctr", "--containerd-socket", "/run/k3s.sock"),
        *("--driver-name", "gpu.example.com"),
    )
    assert ended.status == 0, ended.err
    (imported,) = site.node.imported
    assert imported["--container"] == "worker"
    assert (imported["--ctr"], imported["--containerd-socket"]) == ("/opt/k3s/ctr", "/run/k3s.sock")
    claim, pod = objects(ended.out)["ResourceClaim"], objects(ended.out)["Pod"]
    assert pod["metadata"] == {"name": "second", "namespace": "else"}
    assert pod["spec"]["containers"][0]["name"] == "worker"
    assert claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == (
        "gpu.gpu.example.com"
    )


def test_nothing_is_imported_when_the_claim_would_be_of_another_namespace(site: Site) -> None:
    claims = [{"namespace": "team", "name": "gpus", "uid": "1"}]
    site.node.operations.append({**operation(manifest=MANIFEST), "claims": claims})
    asked = ("restore", str(site.archive), "--import", "--node", "node-a")
    ended = site.ask(*asked, "-n", "else")
    assert (ended.status, ended.out, site.node.imported) == (2, "", [])
    assert "--namespace is 'else': operation op-1 is of claims in team" in ended.err
    assert site.ask(*asked).status == 0


def test_person_is_told_when_the_claim_will_be_refused(site: Site) -> None:
    failed = operation(manifest=MANIFEST, state="FAILED_CLEAN", message="the runtime ended")
    site.node.operations.append(failed)
    ended = site.ask("restore", str(site.archive), "--import", "--node", "node-a")
    assert ended.status == 0
    assert "note: operation op-1 ended as failed clean: the runtime ended;" in ended.err
    assert "take restoreFrom out of the claim" in ended.err


def test_checkpoint_without_an_operation_is_restored_without_a_claim(site: Site) -> None:
    site.node.refuse["ListOperations"] = "UNAVAILABLE"
    ended = site.ask("restore", str(site.archive), "--import", "--node", "node-a")
    assert ended.status == 0
    assert sorted(objects(ended.out)) == ["Pod"]
    assert "give --operation" in ended.err


def test_image_is_written_to_a_file_of_this_machine(site: Site) -> None:
    local = write_checkpoint(site.folder)
    target = site.folder / "image.tar"
    ended = site.ask("restore", str(local), "-o", str(target), "--architecture", "arm64")
    assert ended.status == 0
    assert sorted(objects(ended.out)) == ["Pod"]
    assert f"skopeo copy oci-archive:{target} docker://{IMAGE}" in ended.err
    with tarfile.open(target) as layout:
        assert "index.json" in layout.getnames()
    assert target.stat().st_mode & 0o777 == 0o600
    assert site.files() == {local.name, "image.tar"}
    assert site.cluster.ran == []


def test_operation_is_looked_for_on_all_nodes_for_a_file_of_this_machine(site: Site) -> None:
    site.cluster.pods += [plugin_pod("node-b")]
    site.node.operations.append(operation(manifest=MANIFEST))
    local = write_checkpoint(site.folder)
    ended = site.ask(
        *("restore", str(local), "-o", str(site.folder / "i.tar"), "--operation", "op-1", "--json")
    )
    report = json.loads(ended.out)
    assert [each["kind"] for each in report["objects"]] == ["ResourceClaim", "Pod"]
    assert site.cluster.ran == [
        ("node-a", ["hook", "GetOperation", '{"operationId": "op-1"}']),
    ]


def test_operation_that_nobody_knows_leaves_no_image(site: Site) -> None:
    local = write_checkpoint(site.folder)
    ended = site.ask(
        *("restore", str(local), "-o", str(site.folder / "i.tar"), "--operation", "gone")
    )
    assert (ended.status, ended.out) == (1, "")
    assert "operation gone was not found: on node node-a: NOT_FOUND" in ended.err
    assert site.files() == {local.name}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give either --import"),
        (("--import", "-o", "x", "--node", "node-a"), "give either --import"),
        (("--import",), "--import needs --node"),
        (("-o", "x", "--image", "UPPER"), "--image is 'UPPER': give a name with registry and tag"),
        (("-o", "x", "--image", "a/b"), "--image is 'a/b'"),
        (("-o", "x", "--image", "a/b:1 2"), "--image is 'a/b:1 2'"),
        (("-o", "x", "--name", "a_b"), "--name is 'a_b': give at most 63 lower-case letters"),
        (("-o", "x", "--name", "a" * 64), "--name is 'aaa"),
        (("-o", "x", "-c", "-"), "--container is '-'"),
    ],
)
def test_bad_wish_is_refused_in_a_sentence(
    site: Site, arguments: tuple[str, ...], text: str
) -> None:
    ended = site.ask("restore", str(site.archive), *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert text in ended.err
    assert site.cluster.ran == []


def test_archive_without_a_containers_name_needs_one(site: Site) -> None:
    local = write_checkpoint(site.folder, config={"x": 1}, spec=None)
    target = str(site.folder / "i.tar")
    ended = site.ask("restore", str(local), "-o", target)
    assert ended.status == 2
    assert "--container is not set" in ended.err
    ended = site.ask("restore", str(local), "-o", target, "-c", "main")
    assert objects(ended.out)["Pod"]["metadata"] == {
        "name": "main-restored",
        "namespace": "default",
    }


def test_archive_that_is_none_is_refused(site: Site) -> None:
    ended = site.ask("restore", "no-such.tar", "-o", str(site.folder / "i.tar"))
    assert (ended.status, ended.err) == (1, "gpuslice: there is no archive no-such.tar\n")
    ended = site.ask("restore", "/etc/shadow", "--import", "--node", "node-a")
    assert ended.status == 1
    assert "on node node-a: /etc/shadow is no checkpoint of the kubelet's" in ended.err
    assert site.files() == set()
