"""The objects that restore a checkpoint, as the driver and its classes understand them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dra_api.config import decode
from dra_driver.model.config import GpuConfig
from dra_driver.model.device import GpuUuid
from dra_driver.model.manifest import Manifest, ManifestGpu
from dra_driver.model.share import CheckpointPolicy, Sharing
from dra_driver.plan.restore_objects import RestoreWish, restore_notes, restore_objects
from tests import builders, manifests
from tests.manifests import of_kind

GPUS = tuple(
    ManifestGpu(uuid=GpuUuid(builders.uuid(number)), product_name="H100") for number in (0, 1)
)
MANIFEST = Manifest(
    node="node-a", driver_version="580.1", cuda_version="13.0", library="/libcuda", gpus=GPUS
)
WISH = RestoreWish(
    name="trainer-restored",
    namespace="team",
    container="main",
    image="localhost/checkpoint/team/trainer/main:1",
    node="node-a",
    operation_id="op-1",
    manifest=MANIFEST,
    driver="gpuslice.io",
)


def requests(wish: RestoreWish) -> list[dict[str, Any]]:
    claim, _ = restore_objects(wish)
    return [each["exactly"] for each in claim["spec"]["devices"]["requests"]]


def test_claim_names_the_gpus_that_criu_comes_back_to() -> None:
    found = requests(WISH)
    assert [each["deviceClassName"] for each in found] == ["gpu.gpuslice.io"] * 2
    assert [each["selectors"][0]["cel"]["expression"] for each in found] == [
        f'device.attributes["gpuslice.io"].uuid == "{gpu.uuid}"' for gpu in GPUS
    ]
    classes = {each["metadata"]["name"] for each in of_kind("DeviceClass", manifests.base())}
    assert {each["deviceClassName"] for each in found} <= classes


@pytest.mark.parametrize(
    "manifest", [replace(MANIFEST, driver_owned=True), replace(MANIFEST, host_only=True)]
)
def test_claim_takes_any_gpu_where_none_has_to_be_the_same(manifest: Manifest) -> None:
    wish = replace(WISH, manifest=manifest)
    assert [sorted(each) for each in requests(wish)] == [["deviceClassName"]] * 2


def test_claim_of_a_share_asks_for_its_memory() -> None:
    share = replace(GPUS[0], sharing=Sharing.MPS, held_memory_mib=6144)
    wish = replace(WISH, manifest=replace(MANIFEST, gpus=(share,), host_only=True))
    (found,) = requests(wish)
    assert found["deviceClassName"] == "slice.gpuslice.io"
    assert found["capacity"] == {"requests": {"memory": "6144Mi"}}
    # Shares have no config that names an operation.
    assert "config" not in restore_objects(wish)[0]["spec"]["devices"]


def test_claim_says_which_operation_it_restores() -> None:
    claim, _ = restore_objects(WISH)
    (config,) = claim["spec"]["devices"]["config"]
    assert config["opaque"]["driver"] == "gpuslice.io"
    assert decode(config["opaque"]["parameters"], path="config") == GpuConfig(
        restore_from="op-1", checkpoint=CheckpointPolicy.BEST_EFFORT
    )


def test_pod_uses_the_claim_on_the_node_that_has_the_image() -> None:
    claim, pod = restore_objects(WISH)
    (container,) = pod["spec"]["containers"]
    assert (container["name"], container["image"]) == ("main", WISH.image)
    assert container["imagePullPolicy"] == "Never"
    (used,) = pod["spec"]["resourceClaims"]
    assert used["resourceClaimName"] == claim["metadata"]["name"] == "trainer-restored"
    assert container["resources"]["claims"] == [{"name": used["name"]}]
    assert {each["metadata"]["namespace"] for each in (claim, pod)} == {"team"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert "node-a" in str(pod["spec"]["affinity"])


def test_pod_of_a_registry_may_run_anywhere() -> None:
    _, pod = restore_objects(replace(WISH, node=None))
    assert "affinity" not in pod["spec"]
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


@pytest.mark.parametrize("manifest", [None, replace(MANIFEST, gpus=())])
def test_pod_without_gpus_claims_none(manifest: Manifest | None) -> None:
    (pod,) = restore_objects(replace(WISH, manifest=manifest))
    assert pod["kind"] == "Pod"
    assert "resourceClaims" not in pod["spec"]
    assert "resources" not in pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("wish", "text"),
    [
        (WISH, "the very same GPUs"),
        (replace(WISH, manifest=None), "--operation"),
        (replace(WISH, manifest=replace(MANIFEST, gpus=())), "no GPU state"),
        (replace(WISH, manifest=replace(MANIFEST, host_only=True)), "not part of this"),
        (replace(WISH, manifest=replace(MANIFEST, driver_owned=True)), "580 or later"),
        (replace(WISH, node=None), "a node like the one"),
    ],
)
def test_notes_say_what_to_expect(wish: RestoreWish, text: str) -> None:
    notes = restore_notes(wish)
    assert any(text in note for note in notes)
    assert "the same paths" in notes[0]
