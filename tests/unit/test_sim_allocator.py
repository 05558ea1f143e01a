"""The embedded scheduler on what this driver publishes and what is shipped with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.model.capability import ApiCapability
from dra_driver.model.pool import Pool
from dra_driver.plan.allocate_parse import parse_class, parse_slice
from dra_driver.plan.slice_json import slice_specs
from dra_driver.plan.slices import PublishMode
from dra_driver.sim.allocator import allocate_document
from dra_driver.sim.cel import CelSelectors
from tests import builders
from tests.arch.sources import ROOT
from tests.unit.allocating import Cluster, claim_json, overcommitted
from tests.unit.publishing import DEFAULT_34, DEFAULT_37, GATES_34, options, pool_of

CLASSES = list(yaml.safe_load_all((ROOT / "manifests/base/deviceclasses.yaml").read_text()))
EXAMPLES = sorted((ROOT / "manifests/examples").glob("*.yaml"))
GPUS = 2
NODES = (
    (DEFAULT_37, "whole"),
    (GATES_34, "whole"),
    (DEFAULT_34, "whole"),
    (DEFAULT_34, "2x25+5x10"),
    (DEFAULT_34, "2x50"),
)
"""API servers and layouts of slots."""


def _pool(server: ApiCapability, layout: str = "whole", *, gpus: int = GPUS) -> Pool:
    inventory = builders.inventory(*map(builders.gpu, range(gpus)))
    return pool_of(inventory, server, publish=options(PublishMode.AUTO, layout))


def _slices(pool: Pool) -> list[dict[str, Any]]:
    specs = json.loads(json.dumps(slice_specs(pool)))
    return [{"metadata": {"name": f"slice-{n}"}, "spec": spec} for n, spec in enumerate(specs)]


def _ask(device_class: str, **exactly: Any) -> dict[str, Any]:
    return claim_json(
        {"name": "gpu", "exactly": {"deviceClassName": f"{device_class}.gpuslice.io", **exactly}}
    )


def _capacity(**amounts: str) -> dict[str, Any]:
    return {"capacity": {"requests": amounts}}


@pytest.mark.parametrize(
    ("server", "layout", "expected"),
    [
        (DEFAULT_37, "whole", {"slice": GPUS, "gpu": GPUS, "monitor": GPUS}),
        (GATES_34, "whole", {"slice": GPUS, "gpu": GPUS, "monitor": GPUS}),
        (DEFAULT_34, "whole", {"gpu": GPUS, "monitor": GPUS}),
        (DEFAULT_34, "4x25", {"slice-25": 4 * GPUS, "monitor": GPUS}),
        (DEFAULT_34, "10x10", {"slice-10": 10 * GPUS, "monitor": GPUS}),
        (DEFAULT_34, "2x50", {"slice-50": 2 * GPUS, "monitor": GPUS}),
    ],
)
def test_shipped_classes_select_what_they_are_for(
    server: ApiCapability, layout: str, expected: dict[str, int]
) -> None:
    matches = CelSelectors()
    offers = [
        offer for each in _slices(_pool(server, layout)) for offer in parse_slice(each).offers
    ]
    selected = {
        each.name.removesuffix(".gpuslice.io"): sum(
            all(matches(text, offer) for text in each.selectors) for offer in offers
        )
        for each in map(parse_class, CLASSES)
    }
    assert {name: count for name, count in selected.items() if count} == expected


@pytest.mark.parametrize(("minor", "server"), [(34, GATES_34), (37, DEFAULT_37)])
def test_shares_fill_one_gpu_before_the_next(minor: int, server: ApiCapability) -> None:
    slices, given = _slices(_pool(server)), []
    others: list[dict[str, Any]] = []
    for _ in range(6):
        claim = _ask("slice", **_capacity(compute="40", memory="6Gi"))
        document = {"minor": minor, "node": builders.NODE, "slices": slices, "classes": CLASSES}
        answer = allocate_document({**document, "claims": [claim], "others": others})
        if "refused" in answer:
            given.append(answer["refused"])
            continue
        (allocation,) = answer["allocations"]
        others.append({**claim, "status": {"allocation": allocation}})
        given.append(allocation["devices"]["results"][0]["device"])
    first, second = (f"gpu-{number:08x}-0000-4000-8000-{number:012x}" for number in range(GPUS))
    refusal = "cannot allocate all claims"
    assert given == [first, first, second, second, refusal, refusal]
    assert overcommitted(Cluster(slices=slices, claims=others)) == []


def test_document_tells_an_error_from_a_refusal() -> None:
    document = {"minor": 37, "node": builders.NODE, "slices": _slices(_pool(DEFAULT_37))}
    answer = allocate_document({**document, "claims": [_ask("slice")]})
    assert answer == {"refused": "request gpu: device class slice.gpuslice.io does not exist"}
    answer = allocate_document({**document, "classes": CLASSES, "claims": [_ask("gpu", count=33)]})
    assert answer["kind"] == "AllocationError"
    assert "33 exceeds the claim limit of 32" in answer["error"]


def test_document_names_the_death_of_the_scheduler() -> None:
    gpus = [_slices(_pool(DEFAULT_34))[0]]
    gpus[0]["spec"]["devices"] = gpus[0]["spec"]["devices"][:1]
    second = json.loads(json.dumps(gpus[0]).replace("gpu-00000000", "gpu-00000001"))
    second["metadata"]["name"] = "slice-1"
    answer = allocate_document(
        {
            "minor": 34,
            "node": builders.NODE,
            "slices": [*gpus, second],
            "classes": CLASSES,
            "claims": [_ask("gpu", count=2)],
        }
    )
    assert answer["kind"] == "SchedulerPanicError"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_understood_everywhere_and_allocated_somewhere(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    specs = [
        each["spec"]["spec"] if each["kind"] == "ResourceClaimTemplate" else each["spec"]
        for each in documents
        if each["kind"] in {"ResourceClaimTemplate", "ResourceClaim"}
    ]
    for spec in specs:
        answers = [_answer(spec, server, layout) for server, layout in NODES]
        assert [each["error"] for each in answers if "error" in each] == []
        assert any("allocations" in each for each in answers)


def _answer(spec: dict[str, Any], server: ApiCapability, layout: str) -> dict[str, Any]:
    """What a fresh node says to a claim, as the API server of its version stores it."""
    stored = json.loads(json.dumps(spec["devices"]))
    if not server.consumable:
        for request in stored["requests"]:
            for choice in request.get("firstAvailable") or [request["exactly"]]:
                choice.pop("capacity", None)
    return allocate_document(
        {
            "minor": server.minor,
            "consumable": server.consumable,
            "taints": server.taints,
            "node": builders.NODE,
            "slices": _slices(_pool(server, layout, gpus=8)),
            "classes": CLASSES,
            "claims": [claim_json(*stored.pop("requests"), **stored)],
        }
    )
