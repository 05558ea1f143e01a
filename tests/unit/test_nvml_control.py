"""What NVML alone knows of compute modes and processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.adapters.nvml import NvmlGpus
from dra_driver.adapters.nvml_control import NvmlControl
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.model.mps import ComputeMode, GpuProcess
from tests.builders import gpu, uuid
from tests.fakes.gpu_node import CallFault, NodeState, OnGpu
from tests.fakes.nvml_stub import StubDriver, compile_stub

GPUS = (gpu(0),)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path, stub: Path) -> StubDriver:
    driver = StubDriver(tmp_path, stub)
    driver.save(NodeState(gpus=GPUS))
    return driver


@pytest.fixture
def gpus(driver: StubDriver) -> Iterator[NvmlGpus]:
    gpus = NvmlGpus(driver_root=driver.driver_root, sysfs=Sysfs(driver.host_root))
    yield gpus
    gpus.close()


def test_processes_take_a_server_by_its_programs_name_for_mps(
    driver: StubDriver, gpus: NvmlGpus
) -> None:
    server = OnGpu(
        gpu=uuid(0), pid=7, memory_bytes=30 << 20, mps=False, name="nvidia-cuda-mps-server"
    )
    driver.save(NodeState(gpus=GPUS, processes=(server,)))

    assert NvmlControl(gpus).processes(uuid(0)) == (
        GpuProcess(pid=7, memory_bytes=30 << 20, mps=True),
    )


@pytest.mark.parametrize(
    ("first", "second", "memory"), [(None, 5, 5), (5, None, 5), (3, 5, 5), (None, None, None)]
)
def test_processes_join_both_lists_when_a_client_stands_in_each(
    driver: StubDriver, gpus: NvmlGpus, first: int | None, second: int | None, memory: int | None
) -> None:
    both = (
        OnGpu(gpu=uuid(0), pid=7, memory_bytes=first, mps=False),
        OnGpu(gpu=uuid(0), pid=7, memory_bytes=second, mps=True),
    )
    driver.save(NodeState(gpus=GPUS, processes=both))

    assert NvmlControl(gpus).processes(uuid(0)) == (
        GpuProcess(pid=7, memory_bytes=memory, mps=True),
    )


def test_processes_are_the_others_when_the_board_tells_no_clients_of_mps(
    driver: StubDriver, gpus: NvmlGpus
) -> None:
    fault = CallFault(call="mpsProcesses", error="NOT_SUPPORTED")
    other = OnGpu(gpu=uuid(0), pid=7, memory_bytes=1, mps=False)
    driver.save(NodeState(gpus=GPUS, faults=(fault,), processes=(other,)))

    assert [each.pid for each in NvmlControl(gpus).processes(uuid(0))] == [7]


def test_processes_fail_when_clients_of_mps_cannot_be_told_now(
    driver: StubDriver, gpus: NvmlGpus
) -> None:
    driver.save(NodeState(gpus=GPUS, faults=(CallFault(call="mpsProcesses", error="UNKNOWN"),)))

    with pytest.raises(AdapterError, match="processes"):
        NvmlControl(gpus).processes(uuid(0))


@pytest.mark.parametrize(
    ("error", "way_out"), [("NOT_SUPPORTED", "use it whole"), ("NO_PERMISSION", "CAP_SYS_ADMIN")]
)
def test_set_compute_mode_says_what_to_do_when_it_never_can(
    driver: StubDriver, gpus: NvmlGpus, error: str, way_out: str
) -> None:
    driver.save(NodeState(gpus=GPUS, faults=(CallFault(call="setComputeMode", error=error),)))

    with pytest.raises(AdapterError, match=way_out) as caught:
        NvmlControl(gpus).set_compute_mode(uuid(0), ComputeMode.EXCLUSIVE_PROCESS)

    assert caught.value.permanent
    assert uuid(0) in str(caught.value)


@pytest.mark.parametrize(
    ("number", "mode"), [(1, ComputeMode.EXCLUSIVE_PROCESS), (2, ComputeMode.PROHIBITED)]
)
def test_compute_mode_reads_what_others_have_set(
    gpus: NvmlGpus, number: int, mode: ComputeMode
) -> None:
    with gpus.lend(uuid(0), "a test") as (nvml, handle):
        nvml.nvmlDeviceSetComputeMode(handle, number)

    assert NvmlControl(gpus).compute_mode(uuid(0)) is mode


def test_compute_mode_fails_when_the_number_is_new(gpus: NvmlGpus) -> None:
    with gpus.lend(uuid(0), "a test") as (nvml, handle):
        nvml.nvmlDeviceSetComputeMode(handle, 17)

    with pytest.raises(AdapterError, match="17"):
        NvmlControl(gpus).compute_mode(uuid(0))


def test_control_opens_the_driver_again_when_it_was_reloaded(
    driver: StubDriver, gpus: NvmlGpus
) -> None:
    control = NvmlControl(gpus)
    assert gpus.inventory().gpus
    with gpus.lend(uuid(0), "a test") as (nvml, _):
        nvml.nvmlShutdown()

    with pytest.raises(AdapterError, match="reloaded"):
        control.compute_mode(uuid(0))

    assert control.compute_mode(uuid(0)) is ComputeMode.DEFAULT
    assert gpus.inventory().gpus


def test_control_says_that_there_is_no_driver(driver: StubDriver, gpus: NvmlGpus) -> None:
    driver.save(NodeState(faults=(CallFault(call="enumerate", error="DRIVER_NOT_LOADED"),)))

    with pytest.raises(DriverNotLoaded):
        NvmlControl(gpus).processes(uuid(0))
