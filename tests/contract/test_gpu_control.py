"""What every GpuControl keeps: run alike on the simulated one and on NVML over a stub driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_driver.adapters.nvml import NvmlGpus
from dra_driver.adapters.nvml_control import NvmlControl
from dra_driver.adapters.simulated_control import SimulatedControl
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import AdapterError
from dra_driver.model.mps import ComputeMode, GpuProcess
from dra_driver.ports import GpuControl
from tests.builders import gpu, uuid
from tests.fakes.gpu_node import CallFault, NodeState, OnGpu, simulation_text, write_whole
from tests.fakes.nvml_stub import StubDriver, compile_stub

GPUS = (gpu(0), gpu(1))
GIB = 1 << 30


@dataclass(frozen=True)
class Node:
    """A node whose state a test sets, and what controls its GPUs."""

    save: Callable[[NodeState], None]
    control: GpuControl


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(params=["simulated", "nvml"])
def node(request: pytest.FixtureRequest, tmp_path: Path, stub: Path) -> Iterator[Node]:
    if request.param == "nvml":
        driver = StubDriver(tmp_path, stub)
        driver.save(NodeState(gpus=GPUS))
        gpus = NvmlGpus(driver_root=driver.driver_root, sysfs=Sysfs(driver.host_root))
        yield Node(driver.save, NvmlControl(gpus))
        gpus.close()
        return
    path = tmp_path / "node.yaml"
    path.write_text(simulation_text(NodeState(gpus=GPUS)))
    file = SimulationFile(path, node_name="node-a")
    yield Node(
        lambda state: write_whole(path, simulation_text(state)),
        SimulatedControl(file, run_dir=tmp_path / "run"),
    )


@pytest.mark.parametrize("mode", ComputeMode)
def test_compute_mode_is_the_one_that_was_set(node: Node, mode: ComputeMode) -> None:
    assert node.control.compute_mode(uuid(0)) is ComputeMode.DEFAULT

    for wanted in (ComputeMode.EXCLUSIVE_PROCESS, mode):
        node.control.set_compute_mode(uuid(0), wanted)

    assert node.control.compute_mode(uuid(0)) is mode
    assert node.control.compute_mode(uuid(1)) is ComputeMode.DEFAULT


def test_set_compute_mode_changes_nothing_when_the_driver_refuses(node: Node) -> None:
    fault = CallFault(call="setComputeMode", gpu=uuid(0), error="UNKNOWN")
    node.save(NodeState(gpus=GPUS, faults=(fault,)))

    with pytest.raises(AdapterError, match=uuid(0)):
        node.control.set_compute_mode(uuid(0), ComputeMode.PROHIBITED)

    assert node.control.compute_mode(uuid(0)) is ComputeMode.DEFAULT
    node.control.set_compute_mode(uuid(1), ComputeMode.PROHIBITED)


def test_processes_are_those_of_the_gpu_by_pid_and_followed(node: Node) -> None:
    assert node.control.processes(uuid(0)) == ()
    first = OnGpu(gpu=uuid(0), pid=70, memory_bytes=5 * GIB)
    others = tuple(OnGpu(gpu=uuid(1), pid=100 + each, memory_bytes=each) for each in range(40))
    node.save(
        NodeState(
            gpus=GPUS,
            processes=(
                first,
                OnGpu(gpu=uuid(0), pid=8, memory_bytes=None),
                OnGpu(gpu=uuid(0), pid=9, memory_bytes=GIB, mps=False),
                *others,
            ),
        )
    )

    assert node.control.processes(uuid(0)) == (
        GpuProcess(pid=8, memory_bytes=None, mps=True),
        GpuProcess(pid=9, memory_bytes=GIB, mps=False),
        GpuProcess(pid=70, memory_bytes=5 * GIB, mps=True),
    )
    assert [each.pid for each in node.control.processes(uuid(1))] == list(range(100, 140))
    node.save(NodeState(gpus=GPUS, processes=(first,)))
    assert [each.pid for each in node.control.processes(uuid(0))] == [70]


@pytest.mark.parametrize(
    "call",
    [
        lambda control: control.compute_mode(uuid(9)),
        lambda control: control.set_compute_mode(uuid(9), ComputeMode.DEFAULT),
        lambda control: control.processes(uuid(9)),
    ],
)
def test_calls_fail_when_there_is_no_such_gpu(
    node: Node, call: Callable[[GpuControl], object]
) -> None:
    with pytest.raises(AdapterError, match=uuid(9)):
        call(node.control)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("computeMode", lambda control: control.compute_mode(uuid(0))),
        ("processes", lambda control: control.processes(uuid(0))),
    ],
)
def test_queries_fail_and_work_again_when_the_driver_mends(
    node: Node, name: str, call: Callable[[GpuControl], object]
) -> None:
    node.save(NodeState(gpus=GPUS, faults=(CallFault(call=name, error="GPU_IS_LOST"),)))
    with pytest.raises(AdapterError, match=uuid(0)):
        call(node.control)

    node.save(NodeState(gpus=GPUS))

    call(node.control)
