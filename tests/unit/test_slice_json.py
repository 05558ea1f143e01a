"""ResourceSlices as JSON, against the rules of the API server."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.model.pool import Pool
from dra_driver.plan.slice_json import same_spec, slice_specs
from dra_driver.plan.slices import PublishMode
from dra_driver.sim.api_profiles import V1_34, V1_34_GATES, V1_37, ApiProfile
from dra_driver.sim.api_rules import admit, slice_problems
from tests import builders
from tests.unit.publishing import (
    DEFAULT_34,
    DEFAULT_37,
    GATES_34,
    options,
    pool_of,
    sick,
)

SERVERS = st.sampled_from([(V1_34, DEFAULT_34), (V1_34_GATES, GATES_34), (V1_37, DEFAULT_37)])
LAYOUTS = st.sampled_from(["whole", "10x10", "4x25", "2x25+5x10", "100x1"])


def body(spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": deepcopy(spec) | {"pool": {**spec["pool"]}}}


def problems(pool: Pool, profile: ApiProfile) -> list[str]:
    return [text for spec in slice_specs(pool) for text in slice_problems(body(spec), profile)]


def test_slice_specs_spell_every_field_as_the_api_does_when_gpu_is_sick() -> None:
    inventory = sick(builders.inventory(builders.gpu(0)), builders.uuid(0))
    (spec,) = slice_specs(pool_of(inventory))
    assert spec["driver"] == "gpuslice.io"
    assert spec["nodeName"] == "node-a"
    assert spec["pool"] == {"name": "node-a", "resourceSliceCount": 1}
    gpu, monitor = spec["devices"]
    assert gpu["attributes"]["type"] == {"string": "gpu"}
    assert gpu["attributes"]["index"] == {"int": 0}
    assert gpu["attributes"]["burstAllowed"] == {"bool": True}
    assert gpu["attributes"]["driverVersion"] == {"version": "570.133.20"}
    assert gpu["capacity"]["memory"] == {
        "value": "80041Mi",
        "requestPolicy": {
            "default": "80041Mi",
            "validRange": {"min": "256Mi", "max": "80041Mi", "step": "1Mi"},
        },
    }
    assert gpu["allowMultipleAllocations"] is True
    assert gpu["taints"] == [
        {"key": "gpuslice.io/unhealthy", "value": "xid-79", "effect": "NoSchedule"}
    ]
    assert set(monitor) == {"name", "attributes", "capacity"}


def test_slice_specs_leave_devices_out_when_there_are_none() -> None:
    (spec,) = slice_specs(pool_of(builders.inventory()))
    assert "devices" not in spec


@settings(max_examples=300)
@given(
    total=st.none() | st.integers(0, 1 << 43),
    reserved=st.integers(0, 1 << 33),
    server=SERVERS,
    layout=LAYOUTS,
    mode=st.sampled_from(list(PublishMode)),
)
def test_slices_are_valid_on_the_server_when_memory_is_anything(
    *, total: int | None, reserved: int, server: Any, layout: str, mode: PublishMode
) -> None:
    profile, capability = server
    gpu = builders.gpu(0, memory_total_bytes=total, memory_reserved_bytes=reserved)
    pool = pool_of(builders.inventory(gpu), capability, publish=options(mode, layout))
    assert problems(pool, profile) == []


@settings(max_examples=200)
@given(
    text=st.text(max_size=100),
    version=st.text("0123456789.-vabc", max_size=90),
    server=SERVERS,
)
def test_slices_are_valid_on_the_server_when_texts_are_anything(
    *, text: str, version: str, server: Any
) -> None:
    profile, capability = server
    gpu = builders.gpu(
        0,
        product_name=text,
        brand=text,
        architecture=text,
        pcie_root=text,
        pci_bus_id=text,
        nvlink_domain=text,
    )
    inventory = builders.inventory(gpu, driver_version=version, cuda_version=version)
    assert problems(pool_of(sick(inventory, gpu.uuid, cause=text), capability), profile) == []


def test_same_spec_holds_when_the_server_spelled_it_its_own_way() -> None:
    inventory = sick(builders.inventory(builders.gpu(0)), builders.uuid(0))
    for spec in slice_specs(pool_of(inventory, GATES_34)):
        stored = body(spec)
        admit("resourceslices", stored, V1_34_GATES)
        stored["spec"]["pool"]["generation"] = 7
        stored["spec"]["devices"][32]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
        stored["spec"]["devices"][32]["fieldOfTheFuture"] = {"a": 1}
        stored["spec"]["devices"][32]["capacity"]["memory"]["value"] = f"{80041 << 10}Ki"
        assert same_spec(spec, stored["spec"])


def test_same_spec_fails_when_anything_that_matters_differs() -> None:
    (spec,) = slice_specs(pool_of(builders.inventory(builders.gpu(0))))
    policy = {"requestPolicy": None}
    changes: tuple[Callable[[Any], Any], ...] = (
        lambda s: s["devices"].reverse(),
        lambda s: s["devices"].pop(),
        lambda s: s["devices"][0].pop("allowMultipleAllocations"),
        lambda s: s["devices"][0]["capacity"]["memory"].update(policy),
        lambda s: s["devices"][0]["capacity"]["memory"].update(value="1Gi"),
        lambda s: s["devices"][0]["attributes"]["index"].update(int=5),
        lambda s: s["devices"][0]["attributes"].update(other={"bool": True}),
        lambda s: s["devices"][0].update(taints=[{"key": "a", "effect": "NoSchedule"}]),
        lambda s: s["devices"][0].update(consumesCounters=[{"counterSet": "a"}]),
        lambda s: s["pool"].update(resourceSliceCount=2),
        lambda s: s.update(sharedCounters=[{"name": "a"}]),
        lambda s: s.update(devices=None),
    )
    for change in changes:
        changed = deepcopy(spec)
        change(changed)
        assert not same_spec(spec, changed)
