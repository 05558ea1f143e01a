"""The document of a simulated node."""

from __future__ import annotations

import pytest

from dra_driver.adapters.simulated_document import Simulation, parse_simulation
from dra_driver.adapters.simulated_faults import Fault
from dra_driver.adapters.yaml_fields import FieldError, load_yaml
from dra_driver.model.device import GpuFacts
from dra_driver.model.health import GpuEvent
from tests.builders import uuid

ONE = f"gpus: [{{uuid: {uuid(0)}}}]\n"


def parse(text: str) -> Simulation:
    return parse_simulation(load_yaml(text), node_name="node-a")


def parse_gpu(fields: str) -> GpuFacts:
    return parse(f"gpus: [{{uuid: {uuid(0)}, {fields}}}]").gpus[0]


def test_parse_takes_all_that_is_left_out_from_the_profile() -> None:
    gpu = parse_gpu("profile: t4, index: 3")

    assert (gpu.product_name, gpu.architecture, gpu.brand) == ("Tesla T4", "Turing", "Nvidia")
    assert (gpu.sm_count, gpu.compute_capability) == (40, (7, 5))
    assert (gpu.memory_total_bytes, gpu.memory_reserved_bytes) == (15360 << 20, 388 << 20)
    assert (gpu.index, gpu.minor, gpu.pci_bus_id) == (3, 3, "0000:03:00.0")
    assert gpu.mps_control_only is True
    assert (gpu.nvlink_domain, gpu.numa_node, gpu.pcie_root) == (None, None, None)


def test_parse_takes_every_field() -> None:
    gpu = parse_gpu(
        "index: 1, minor: 7, productName: X, brand: Tesla, architecture: Volta, memoryTotal: 1Gi,"
        'memoryReserved: 1048576, smCount: 80, computeCapability: 7.0, pciBusId: "00000000:1A:00.0",'
        "pcieRoot: pci0000:16, numaNode: 1, nvlinkDomain: n4, migEnabled: true,"
        "mps: {controlOnly: false}"
    )

    assert gpu == GpuFacts(
        uuid=uuid(0),
        index=1,
        minor=7,
        product_name="X",
        brand="Tesla",
        architecture="Volta",
        memory_total_bytes=1 << 30,
        memory_reserved_bytes=1 << 20,
        sm_count=80,
        compute_capability=(7, 0),
        pci_bus_id="0000:1a:00.0",
        pcie_root="pci0000:16",
        numa_node=1,
        nvlink_domain="n4",
        mig_enabled=True,
        mps_control_only=False,
    )


def test_parse_takes_null_as_what_the_board_does_not_say() -> None:
    gpu = parse_gpu(
        "memoryTotal: null, smCount: null, computeCapability: null, pciBusId: null, numaNode: -1,"
        "brand: null, mps: {controlOnly: null}"
    )

    assert (gpu.memory_total_bytes, gpu.sm_count, gpu.compute_capability) == (None, None, None)
    assert (gpu.pci_bus_id, gpu.numa_node, gpu.brand) == (None, None, None)
    assert gpu.mps_control_only is None


def test_parse_sorts_gpus_by_index() -> None:
    node = parse(f"gpus: [{{uuid: {uuid(1)}, index: 1}}, {{uuid: {uuid(0)}, index: 0}}]")

    assert [gpu.uuid for gpu in node.gpus] == [uuid(0), uuid(1)]


def test_parse_keeps_versions_as_they_are_written() -> None:
    node = parse("driverVersion: 550.10\ncudaVersion: 12.10\ngpus: []")

    assert (node.driver_version, node.cuda_version) == ("550.10", "12.10")


def test_parse_takes_faults_and_events_by_uuid_and_index() -> None:
    node = parse(
        f"{ONE}faults:\n"
        f"- {{gpu: {uuid(0)}, call: memory, error: NOT_SUPPORTED}}\n"
        "- {gpu: 0, call: mps.start, delay: 250ms, times: 2}\n"
        "- {call: enumerate, error: NVML_ERROR_DRIVER_NOT_LOADED}\n"
        f"events: [{{gpu: 0, xid: 79}}, {{gpu: {uuid(9)}, xid: 13}}]"
    )

    assert node.faults == (
        Fault(call="memory", gpu=uuid(0), error="NOT_SUPPORTED"),
        Fault(call="mps.start", gpu=uuid(0), delay_s=0.25, times=2),
        Fault(call="enumerate", error="DRIVER_NOT_LOADED"),
    )
    assert node.events == (GpuEvent(uuid=uuid(0), xid=79), GpuEvent(uuid=uuid(9), xid=13))


@pytest.mark.parametrize(
    ("text", "where", "way_out"),
    [
        ("gpus: [", "line 1", "expected"),
        ("gpus: []\ngpus: []", "line 2", "twice"),
        ("", "the document", "mapping"),
        ("driverVersion: x", "gpus", "gpus: []"),
        ("gpus: []\ncolour: red", "colour", "driverVersion"),
        ("gpus: 3", "gpus", "list"),
        ("gpus: [1]", "gpus[0]", "mapping"),
        ("gpus: [{profile: t4}]", "gpus[0].uuid", "auto"),
        ("gpus: [{uuid: MIG-1}]", "gpus[0].uuid", "GPU-"),
        ("gpus: [{uuid: GPU-../../etc}]", "gpus[0].uuid", "letters"),
        (f"gpus: [{{uuid: {uuid(0)}, profile: voodoo}}]", "gpus[0].profile", "h100-80gb-sxm"),
        (f"gpus: [{{uuid: {uuid(0)}, memoryTotal: 80GB}}]", "gpus[0].memoryTotal", "6Gi"),
        (f"gpus: [{{uuid: {uuid(0)}, memoryTotal: true}}]", "gpus[0].memoryTotal", "bytes"),
        (f"gpus: [{{uuid: {uuid(0)}, memoryTotal: -1}}]", "gpus[0].memoryTotal", "bytes"),
        (f"gpus: [{{uuid: {uuid(0)}, memoryReserved: 90Gi}}]", "memoryReserved", "more than"),
        (f"gpus: [{{uuid: {uuid(0)}, index: -1}}]", "gpus[0].index", "at least 0"),
        (f"gpus: [{{uuid: {uuid(0)}, smCount: 0}}]", "gpus[0].smCount", "at least 1"),
        (f"gpus: [{{uuid: {uuid(0)}, computeCapability: new}}]", "computeCapability", "9.0"),
        (f"gpus: [{{uuid: {uuid(0)}, pciBusId: slot3}}]", "gpus[0].pciBusId", "0000:1a:00.0"),
        (f"gpus: [{{uuid: {uuid(0)}, migEnabled: 1}}]", "gpus[0].migEnabled", "true or false"),
        (f"gpus: [{{uuid: {uuid(0)}, mps: {{fast: true}}}}]", "gpus[0].mps.fast", "controlOnly"),
        (f"gpus: [{{uuid: {uuid(0)}}}, {{uuid: {uuid(0)}}}]", "uuid", "two GPUs"),
        (f"gpus: [{{uuid: {uuid(0)}}}, {{uuid: {uuid(1)}, index: 0}}]", "index", "two GPUs"),
        (f"{ONE}faults: [{{call: memory}}]", "faults[0].error", "delay"),
        (f"{ONE}faults: [{{error: UNKNOWN}}]", "faults[0].call", "enumerate"),
        (f"{ONE}faults: [{{call: dance, error: UNKNOWN}}]", "faults[0].call", "mps.start"),
        (f"{ONE}faults: [{{call: memory, error: OOPS}}]", "faults[0].error", "NOT_SUPPORTED"),
        (f"{ONE}faults: [{{call: memory, delay: soon}}]", "faults[0].delay", "8s"),
        (
            f"{ONE}faults: [{{call: mig, error: UNKNOWN, times: 0}}]",
            "faults[0].times",
            "at least 1",
        ),
        (f"{ONE}faults: [{{call: mig, error: UNKNOWN, gpu: GPU-9}}]", "faults[0].gpu", "not among"),
        (f"{ONE}faults: [{{call: mig, error: UNKNOWN, gpu: 5}}]", "faults[0].gpu", "index"),
        (f"{ONE}faults: [{{call: wait, error: UNKNOWN, gpu: 0}}]", "faults[0].gpu", "whole node"),
        (f"{ONE}events: [{{gpu: 0}}]", "events[0].xid", "missing"),
        (f"{ONE}events: [{{gpu: 0, xid: many}}]", "events[0].xid", "whole number"),
        ("gpus: []\nbootId: !!int x", "not YAML", "invalid literal"),
        ("gpus: []\nbootId: !!bool x", "not YAML", "fit its tag"),
        ("gpus: []\nbootId: !!timestamp x", "not YAML", "fit its tag"),
        ("gpus: []\nbootId: !!int ''", "not YAML", "fit its tag"),
    ],
)
def test_parse_names_field_and_way_out_when_a_document_is_wrong(
    text: str, where: str, way_out: str
) -> None:
    with pytest.raises(FieldError) as caught:
        parse(text)

    assert where in str(caught.value)
    assert way_out in str(caught.value)
    assert "\n" not in str(caught.value)
