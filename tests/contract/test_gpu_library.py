"""What every GpuLibrary keeps: run alike on the simulated one and on NVML over a stub driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Protocol

import pytest

from dra_driver.adapters.nvml import NvmlGpus
from dra_driver.adapters.simulated import SimulatedGpus
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.model.device import Inventory
from dra_driver.model.health import GpuEvent, HealthStatus
from dra_driver.ports import GpuLibrary
from tests.builders import BOOT, gpu, uuid
from tests.fakes.gpu_node import CallFault, NodeState, simulation_text, write_whole
from tests.fakes.nvml_stub import StubDriver, compile_stub

A100 = {
    "product_name": "NVIDIA A100-SXM4-40GB",
    "architecture": "Ampere",
    "memory_total_bytes": 40960 << 20,
    "memory_reserved_bytes": 620 << 20,
    "sm_count": 108,
    "compute_capability": (8, 0),
    "pcie_root": "pci0000:40",
    "numa_node": None,
}
GPUS = (gpu(0), gpu(1, minor=5), gpu(2, nvlink_domain="n1", **A100), gpu(3, nvlink_domain=None))


class Library(GpuLibrary, Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True)
class Node:
    """A node whose state a test sets, and the library that reads it."""

    save: Callable[[NodeState], None]
    make: Callable[[], Library]


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(params=["simulated", "nvml"])
def node(request: pytest.FixtureRequest, tmp_path: Path, stub: Path) -> Node:
    driver = StubDriver(tmp_path, stub)
    if request.param == "nvml":
        return Node(
            driver.save,
            lambda: NvmlGpus(driver_root=driver.driver_root, sysfs=Sysfs(driver.host_root)),
        )
    path = tmp_path / "node.yaml"
    path.write_text(simulation_text(NodeState()))
    return Node(
        lambda state: write_whole(path, simulation_text(state)),
        lambda: SimulatedGpus(
            SimulationFile(path, node_name="node-a"), sysfs=Sysfs(driver.host_root)
        ),
    )


@pytest.fixture
def library(node: Node) -> Iterator[Library]:
    node.save(NodeState(gpus=GPUS))
    library = node.make()
    yield library
    library.close()


def alike(inventory: Inventory) -> Inventory:
    """Without what only one of the adapters knows."""
    gpus = tuple(replace(each, mps_control_only=None) for each in inventory.gpus)
    return replace(inventory, gpus=gpus, simulated=False)


def statuses(inventory: Inventory) -> dict[str, HealthStatus]:
    return {health.uuid: health.status for health in inventory.health}


def test_inventory_describes_every_gpu(library: Library) -> None:
    inventory = alike(library.inventory())

    assert inventory.gpus == GPUS
    assert inventory.unreadable == ()
    assert (inventory.driver_version, inventory.cuda_version) == ("570.133.20", "12.8")
    assert statuses(inventory) == {each.uuid: HealthStatus.HEALTHY for each in GPUS}


def test_inventory_is_empty_when_there_is_no_gpu(node: Node, library: Library) -> None:
    node.save(NodeState())
    library.close()

    assert node.make().inventory().gpus == ()


@pytest.mark.parametrize(
    ("call", "unknown"),
    [
        ("minor", {"minor": 1}),
        ("name", {"product_name": ""}),
        ("brand", {"brand": None}),
        ("memory", {"memory_total_bytes": None, "memory_reserved_bytes": 0}),
        ("cores", {"sm_count": None}),
        ("pci", {"pci_bus_id": None, "pcie_root": None, "numa_node": None}),
        ("nvlink", {"nvlink_domain": None}),
        ("mig", {}),
    ],
)
def test_inventory_leaves_out_one_fact_when_a_query_is_not_supported(
    node: Node, library: Library, call: str, unknown: dict[str, Any]
) -> None:
    fault = CallFault(call=call, gpu=GPUS[1].uuid, error="NOT_SUPPORTED")
    node.save(NodeState(gpus=GPUS, faults=(fault,)))

    inventory = alike(library.inventory())

    assert inventory.gpus == (GPUS[0], replace(GPUS[1], **unknown), *GPUS[2:])
    assert inventory.unreadable == ()


def test_inventory_leaves_out_placement_when_sysfs_does_not_say(
    node: Node, library: Library
) -> None:
    bare = replace(GPUS[0], pcie_root=None, numa_node=None)
    node.save(NodeState(gpus=(bare,)))
    library.close()

    assert alike(node.make().inventory()).gpus == (bare,)


@pytest.mark.parametrize("error", ["GPU_IS_LOST", "RESET_REQUIRED"])
@pytest.mark.parametrize(("call", "label"), [("handle", "index 1"), ("memory", uuid(1))])
def test_inventory_names_a_lost_gpu_and_keeps_the_others(
    node: Node, library: Library, call: str, label: str, error: str
) -> None:
    fault = CallFault(call=call, gpu=GPUS[1].uuid, error=error)
    node.save(NodeState(gpus=GPUS, faults=(fault,)))

    inventory = alike(library.inventory())

    assert inventory.gpus == (GPUS[0], *GPUS[2:])
    assert [each.label for each in inventory.unreadable] == [label]
    assert call in inventory.unreadable[0].text
    assert uuid(1) not in statuses(inventory)


def test_inventory_has_a_lost_gpu_again_when_it_is_back(node: Node, library: Library) -> None:
    fault = CallFault(call="handle", gpu=GPUS[1].uuid, error="GPU_IS_LOST")
    node.save(NodeState(gpus=GPUS, faults=(fault,)))
    library.inventory()

    node.save(NodeState(gpus=GPUS))

    assert alike(library.inventory()).gpus == GPUS
    assert statuses(library.inventory())[uuid(1)] is HealthStatus.HEALTHY


@pytest.mark.parametrize("error", ["DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "NO_DEVICES"])
def test_inventory_tells_a_missing_driver_from_no_gpus_and_follows_its_load(
    node: Node, library: Library, error: str
) -> None:
    library.close()
    node.save(NodeState(gpus=GPUS, faults=(CallFault(call="enumerate", error=error),)))
    late = node.make()
    for _ in range(2):
        with pytest.raises(DriverNotLoaded):
            late.inventory()

    node.save(NodeState(gpus=GPUS))

    assert alike(late.inventory()).gpus == GPUS
    late.close()


def test_inventory_fails_when_enumeration_does(node: Node, library: Library) -> None:
    node.save(NodeState(gpus=GPUS, faults=(CallFault(call="enumerate", error="UNKNOWN"),)))

    with pytest.raises(AdapterError, match="enumeration") as caught:
        library.inventory()

    assert not isinstance(caught.value, DriverNotLoaded)


def test_inventory_says_that_a_board_is_in_mig_mode(node: Node, library: Library) -> None:
    node.save(NodeState(gpus=(replace(GPUS[0], mig_enabled=True),)))
    library.close()

    assert node.make().inventory().gpus[0].mig_enabled


def test_wait_events_gives_each_event_once(node: Node, library: Library) -> None:
    library.inventory()
    assert library.wait_events(0.05) == ()
    node.save(NodeState(gpus=GPUS, events=((uuid(2), 79), (uuid(0), 13))))

    assert collect(library, 2) == [GpuEvent(uuid=uuid(2), xid=79), GpuEvent(uuid=uuid(0), xid=13)]
    library.inventory()
    assert library.wait_events(0.2) == ()


def test_wait_events_gives_an_event_of_a_gpu_that_does_not_exist(
    node: Node, library: Library
) -> None:
    inventory = library.inventory()
    node.save(NodeState(gpus=GPUS, events=((uuid(9), 79),)))

    (event,) = collect(library, 1)

    assert event.xid == 79
    assert event.uuid not in {each.uuid for each in inventory.gpus}


def test_health_is_unknown_when_a_gpu_reports_no_events(node: Node, library: Library) -> None:
    fault = CallFault(call="events", gpu=GPUS[1].uuid, error="NOT_SUPPORTED")
    node.save(NodeState(gpus=GPUS, faults=(fault,)))

    inventory = library.inventory()

    assert statuses(inventory)[uuid(1)] is HealthStatus.UNKNOWN
    assert statuses(inventory)[uuid(0)] is HealthStatus.HEALTHY
    assert library.wait_events(0.05) == ()


def test_wait_events_waits_when_no_gpu_reports_events(node: Node, library: Library) -> None:
    node.save(NodeState(gpus=GPUS, faults=(CallFault(call="events", error="NOT_SUPPORTED"),)))
    inventory = library.inventory()
    start_s = monotonic()

    assert library.wait_events(0.2) == ()

    assert monotonic() - start_s >= 0.2
    assert set(statuses(inventory).values()) == {HealthStatus.UNKNOWN}


def test_wait_events_fails_and_works_again_when_the_driver_mends(
    node: Node, library: Library
) -> None:
    library.inventory()
    node.save(NodeState(gpus=GPUS, faults=(CallFault(call="wait", error="GPU_IS_LOST"),)))
    with pytest.raises(AdapterError, match="wait"):
        library.wait_events(1)

    node.save(NodeState(gpus=GPUS, events=((uuid(0), 48),)))
    library.inventory()

    assert collect(library, 1) == [GpuEvent(uuid=uuid(0), xid=48)]


def test_close_ends_a_wait(library: Library) -> None:
    library.inventory()
    results: list[tuple[GpuEvent, ...]] = []
    waiter = Thread(target=lambda: results.append(library.wait_events(60)), name="waiter")
    waiter.start()

    library.close()

    waiter.join(5)
    assert results == [()]


def test_boot_id_is_the_machines(library: Library) -> None:
    assert library.boot_id() == BOOT


def collect(library: Library, number: int) -> list[GpuEvent]:
    """Wait for so many events, as the monitor does: in pieces, with reads between."""
    events: list[GpuEvent] = []
    end_s = monotonic() + 5
    while len(events) < number and monotonic() < end_s:
        events += library.wait_events(0.1)
        if not events:
            library.inventory()
    return events
