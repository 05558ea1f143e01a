"""Which of the published devices each shipped class selects, by a CEL evaluator."""

from __future__ import annotations

import pytest

from dra_driver.model.capability import ApiCapability
from dra_driver.plan.allocate_parse import parse_class, parse_slice
from dra_driver.plan.allocate_values import Offer
from dra_driver.plan.slice_json import slice_specs
from dra_driver.sim.cel import CelSelectors
from tests import builders, manifests
from tests.manifests import of_kind
from tests.unit.publishing import DEFAULT_34, DEFAULT_37, GATES_34, options, pool_of

CLASSES = {
    each.name.removesuffix(f".{builders.DRIVER}"): each
    for each in map(parse_class, of_kind("DeviceClass", manifests.base()))
}
GPU = builders.gpu()
NAME = "gpu-00000000-0000-4000-8000-000000000000"


def selected(
    capability: ApiCapability, layout: str = "whole", driver: str = builders.DRIVER
) -> dict[str, list[str]]:
    """Names of devices by class, without the GPU's own part of the name."""
    offers = _offers(capability, layout, driver)
    matches = CelSelectors()
    found = {
        name: [
            each.id.device.removeprefix(NAME)
            for each in offers
            if all(matches(expression, each) for expression in cls.selectors)
        ]
        for name, cls in CLASSES.items()
    }
    return {name: devices for name, devices in found.items() if devices}


def _offers(capability: ApiCapability, layout: str, driver: str) -> tuple[Offer, ...]:
    pool = pool_of(builders.inventory(GPU), capability, publish=options(layout=layout))
    (spec,) = slice_specs(pool)
    return parse_slice({"metadata": {"name": "slice"}, "spec": spec | {"driver": driver}}).offers


@pytest.mark.parametrize("capability", [GATES_34, DEFAULT_37], ids=["padded", "plain"])
def test_shareable_gpu_is_of_the_classes_for_shares_and_for_gpus(
    capability: ApiCapability,
) -> None:
    assert selected(capability) == {"slice": [""], "gpu": [""], "monitor": ["-monitor"]}


def test_gpu_that_cannot_be_shared_is_of_the_class_for_gpus_only() -> None:
    assert selected(DEFAULT_34) == {"gpu": [""], "monitor": ["-monitor"]}


def test_slots_are_of_the_class_of_their_size_only() -> None:
    assert selected(DEFAULT_34, "2x10+1x25+1x50") == {
        "slice-10": ["-slot-10-0", "-slot-10-1"],
        "slice-25": ["-slot-25-0"],
        "slice-50": ["-slot-50-0"],
        "monitor": ["-monitor"],
    }


def test_devices_of_another_driver_are_of_no_class() -> None:
    assert selected(DEFAULT_37, driver="gpu.example.com") == {}
    assert selected(DEFAULT_34, "4x25", driver="gpu.example.com") == {}
