"""The shipped examples: complete, understood by the driver, and true to the device classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dra_api.config import decode
from tests import builders, manifests
from tests.manifests import EXAMPLES, Document, claim_spec, of_kind, pod_spec
from tests.unit.publishing import GATES_34, pool_of

CLASSES = {each["metadata"]["name"] for each in of_kind("DeviceClass", manifests.base())}
ATTRIBUTES = {
    name if "/" in name else f"{builders.DRIVER}/{name}"
    for device in pool_of(builders.inventory(builders.gpu()), GATES_34).slices[0]
    for name, _ in device.attributes
}
SLOT = re.compile(r"slice-(\d+)\.")

each_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def claims(path: Path) -> tuple[Document, ...]:
    return tuple(each for each in manifests.read(path) if each["kind"].startswith("ResourceClaim"))


def pods(path: Path) -> list[Document]:
    makers = {"Pod", "Job", "Deployment"}
    return [pod_spec(each) for each in manifests.read(path) if each["kind"] in makers]


@each_example
def test_example_says_first_what_it_shows(path: Path) -> None:
    comment = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert path.read_text().startswith("\n".join(comment))
    assert len(comment) >= 2
    assert comment[-1].endswith(".")


@each_example
def test_example_brings_all_that_its_pods_name(path: Path) -> None:
    made = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in claims(path)
    }
    used = set()
    for document in manifests.read(path):
        if document["kind"] in {"Pod", "Job", "Deployment"}:
            space = document["metadata"].get("namespace")
            for each in pod_spec(document).get("resourceClaims", ()):
                if "resourceClaimName" in each:
                    used.add(("ResourceClaim", each["resourceClaimName"], space))
                else:
                    used.add(("ResourceClaimTemplate", each["resourceClaimTemplateName"], space))
    assert used == made


@each_example
def test_example_gives_its_claims_to_containers(path: Path) -> None:
    assert pods(path)
    for spec in pods(path):
        declared = {each["name"] for each in spec.get("resourceClaims", ())}
        for container in spec["containers"]:
            named = {each["name"] for each in container["resources"].get("claims", ())}
            assert named == declared
            assert named or container["resources"]["limits"] == {"nvidia.com/gpu": 1}
            assert container["image"] == "busybox:1"


@each_example
def test_example_asks_for_what_is_there(path: Path) -> None:
    for claim in claims(path):
        devices = claim_spec(claim)
        names = {each["name"] for each in devices["requests"]}
        for choice in manifests.choices(devices):
            assert choice["deviceClassName"] in CLASSES
            assert set(choice.get("capacity", {}).get("requests", ())) <= {"compute", "memory"}
        for constraint in devices.get("constraints", ()):
            assert set(constraint.pop("requests")) <= names
            assert set(constraint.values()) <= ATTRIBUTES
        for config in devices.get("config", ()):
            assert set(config["requests"]) <= names
            assert config["opaque"]["driver"] == builders.DRIVER
            decode(config["opaque"]["parameters"], path=path.name)


@each_example
def test_example_of_slots_says_by_selectors_what_a_server_may_drop(path: Path) -> None:
    """1.34 drops amounts unless its gates are on; a selector on capacity stays."""
    for claim in claims(path):
        for choice in manifests.choices(claim_spec(claim)):
            slot = SLOT.match(choice["deviceClassName"])
            if slot is None:
                continue
            (selector,) = choice["selectors"]
            expression = selector["cel"]["expression"]
            amounts = choice.get("capacity", {}).get("requests", {})
            assert "memory.compareTo(quantity(" in expression
            assert amounts.get("compute", slot[1]) == slot[1]
            for amount in amounts.values():
                assert f'quantity("{amount}")' in expression


@each_example
def test_example_of_several_shares_keeps_them_on_several_gpus(path: Path) -> None:
    for claim in claims(path):
        devices = claim_spec(claim)
        for request in devices["requests"]:
            if request.get("exactly", {}).get("count", 1) > 1:
                apart = {"requests": [request["name"]], "distinctAttribute": "gpuslice.io/uuid"}
                assert apart in devices["constraints"]


def test_examples_can_be_applied_together() -> None:
    documents = [each for path in EXAMPLES for each in manifests.read(path)]
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(names) == len(set(names))


def test_examples_cover_what_people_ask_for() -> None:
    stems = {path.stem for path in EXAMPLES}
    assert stems == {
        "all-gpus",
        "bursting",
        "checkpointed",
        "compute-only",
        "developers",
        "extended-resource",
        "memory-only",
        "monitor",
        "nvlink-domain",
        "opposites",
        "quarter",
        "slice-or-slot",
        "slots",
        "small-jobs",
        "time-slices",
        "two-containers",
        "two-gpus",
        "two-pods",
        "whole-else-slice",
        "whole-gpu",
        "whole-node",
    }


def test_monitor_stands_in_a_namespace_that_allows_it() -> None:
    (path,) = (each for each in EXAMPLES if each.stem == "monitor")
    (namespace,) = of_kind("Namespace", manifests.read(path))
    assert namespace["metadata"]["labels"] == {"resource.kubernetes.io/admin-access": "true"}
    others: list[dict[str, Any]] = [
        choice
        for each in EXAMPLES
        if each != path
        for claim in claims(each)
        for choice in manifests.choices(claim_spec(claim))
    ]
    assert not [each for each in others if "adminAccess" in each]
