"""NVML on drivers that are old, late, replaced, or not there; its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic

import pytest

from dra_driver.adapters.nvml import NvmlGpus, find_library
from dra_driver.adapters.nvml_tables import architecture, cuda_version, sm_count, text
from dra_driver.adapters.sysfs import Sysfs, normal_bus_id
from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.model.health import HealthStatus
from tests.builders import gpu, uuid
from tests.fakes.gpu_node import CallFault, NodeState
from tests.fakes.nvml_stub import StubDriver, compile_stub

GPUS = (gpu(0), gpu(1))


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("nvml")
    return compile_stub(folder), compile_stub(folder, old=True)


@pytest.fixture
def driver(tmp_path: Path, stubs: tuple[Path, Path]) -> StubDriver:
    driver = StubDriver(tmp_path, stubs[0])
    driver.save(NodeState(gpus=GPUS))
    return driver


@pytest.fixture
def library(driver: StubDriver) -> Iterator[NvmlGpus]:
    library = NvmlGpus(driver_root=driver.driver_root, sysfs=Sysfs(driver.host_root))
    yield library
    library.close()


def test_inventory_does_with_less_when_the_driver_is_old(
    driver: StubDriver, library: NvmlGpus, stubs: tuple[Path, Path]
) -> None:
    driver.install(stubs[1])
    driver.save(NodeState(driver_version="440.33.01", cuda_version="10.2", gpus=GPUS))

    inventory = library.inventory()

    assert inventory.gpus == tuple(
        replace(each, memory_reserved_bytes=0, sm_count=None) for each in GPUS
    )
    assert inventory.cuda_version == "10.2"
    assert {health.status for health in inventory.health} == {HealthStatus.HEALTHY}


def test_inventory_follows_a_library_that_an_update_replaced(
    driver: StubDriver, library: NvmlGpus, stubs: tuple[Path, Path]
) -> None:
    driver.save(NodeState(gpus=GPUS, faults=(CallFault(call="enumerate", error="NO_DEVICES"),)))
    with pytest.raises(DriverNotLoaded):
        library.inventory()
    driver.install(stubs[1])
    driver.save(NodeState(gpus=GPUS))

    assert library.inventory().gpus[0].sm_count is None


def test_inventory_says_where_it_looked_when_there_is_no_library(tmp_path: Path) -> None:
    library = NvmlGpus(driver_root=tmp_path, sysfs=Sysfs(tmp_path))

    with pytest.raises(DriverNotLoaded, match="--driver-root") as caught:
        library.inventory()

    assert str(tmp_path) in str(caught.value)


def test_inventory_says_that_the_library_cannot_be_loaded(
    driver: StubDriver, library: NvmlGpus
) -> None:
    path = find_library(driver.driver_root)
    assert path is not None
    path.resolve().write_bytes(b"no library")

    with pytest.raises(DriverNotLoaded, match="--driver-root"):
        library.inventory()


def test_inventory_names_a_gpu_that_only_the_kernel_lists(
    driver: StubDriver, library: NvmlGpus
) -> None:
    (driver.host_root / "proc/driver/nvidia/gpus/0000:99:00.0").mkdir()

    inventory = library.inventory()

    assert [each.label for each in inventory.unreadable] == ["PCI 0000:99:00.0"]
    assert inventory.gpus == GPUS


def test_inventory_keeps_events_that_come_while_a_gpu_is_lost(
    driver: StubDriver, library: NvmlGpus
) -> None:
    fault = CallFault(call="handle", gpu=uuid(1), error="GPU_IS_LOST")
    driver.save(NodeState(gpus=GPUS, faults=(fault,)))
    library.inventory()
    driver.save(NodeState(gpus=GPUS, faults=(fault,), events=((uuid(0), 79),)))

    assert [event.xid for event in library.wait_events(1)] == [79]


def test_inventory_takes_the_minor_from_the_kernel_when_nvml_has_none(
    driver: StubDriver, library: NvmlGpus
) -> None:
    fault = CallFault(call="minor", error="NOT_SUPPORTED")
    driver.save(NodeState(gpus=GPUS[:1], faults=(fault,)))
    listed = driver.host_root / "proc/driver/nvidia/gpus" / str(GPUS[0].pci_bus_id)
    (listed / "information").write_text("Model: \t\t NVIDIA H100\nDevice Minor: \t 7\n")

    assert library.inventory().gpus[0].minor == 7


def test_wait_events_asks_for_an_inventory_first(library: NvmlGpus) -> None:
    with pytest.raises(AdapterError, match="inventory"):
        library.wait_events(1)


def test_inventory_leaves_a_wait_alone_while_all_is_well(library: NvmlGpus) -> None:
    library.inventory()
    waited_s: list[float] = []

    def wait() -> None:
        start_s = monotonic()
        library.wait_events(1)
        waited_s.append(monotonic() - start_s)

    waiter = Thread(target=wait, name="waiter")
    waiter.start()
    while waiter.is_alive():
        library.inventory()
        waiter.join(0.05)

    assert waited_s[0] >= 0.99


def test_inventory_refuses_when_closed(library: NvmlGpus) -> None:
    library.inventory()
    library.close()

    with pytest.raises(AdapterError, match="closed"):
        library.inventory()


@pytest.mark.parametrize(
    ("cores", "capability", "expected"),
    [
        (16896, (9, 0), 132),
        (6912, (8, 0), 108),
        (18176, (8, 9), 142),
        (2560, (7, 5), 40),
        (18944, (10, 0), 148),
        (2880, (3, 5), None),
        (100, (9, 0), None),
        (0, (9, 0), None),
        (None, (9, 0), None),
        (16896, None, None),
    ],
)
def test_sm_count_divides_cores_by_those_of_an_sm(
    cores: int | None, capability: tuple[int, int] | None, expected: int | None
) -> None:
    assert sm_count(cores, capability) == expected


@pytest.mark.parametrize(
    ("number", "capability", "expected"),
    [
        (9, (9, 0), "Hopper"),
        (None, (8, 9), "Ada Lovelace"),
        (None, (7, 5), "Turing"),
        (None, (8, 6), "Ampere"),
        (None, None, None),
        (99, (9, 0), None),
    ],
)
def test_architecture_falls_back_to_the_compute_capability(
    number: int | None, capability: tuple[int, int] | None, expected: str | None
) -> None:
    assert architecture(number, capability) == expected


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:65:00.0", "0000:65:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("", None),
        ("nonsense", None),
    ],
)
def test_normal_bus_id_spells_as_sysfs_does(spelling: str, expected: str | None) -> None:
    assert normal_bus_id(spelling) == expected


def test_cuda_version_reads_nvmls_number() -> None:
    assert cuda_version(12040) == "12.4"
    assert cuda_version(13000) == "13.0"
    assert cuda_version(None) is None


def test_text_takes_both_spellings_of_strings() -> None:
    assert (text(b"GPU-1"), text("GPU-1"), text(None)) == ("GPU-1", "GPU-1", "")
