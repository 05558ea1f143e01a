"""What every CudaProcesses keeps: run alike in memory and over a libcuda in helper processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.cuda_checkpoint import CudaCheckpoint
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.errors import AdapterError, CudaFailed, OutOfTime
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.ports.checkpoint import CudaProcesses
from tests.builders import uuid
from tests.fakes.cuda import FakeCuda
from tests.fakes.cuda_processes import CudaSimulation

MAPPING = (
    DeviceMapping(old=uuid(0), new=uuid(1)),
    DeviceMapping(old=uuid(1), new=uuid(0)),
)


class Node(Protocol):
    """What a test does to the processes of a node."""

    cuda: CudaProcesses

    def start(self, *, uses_cuda: bool = True) -> ProcessRef: ...

    def fault(self, action: str, words: str, process: ProcessRef) -> None: ...

    def mappings(self) -> tuple[tuple[DeviceMapping, ...], ...]:
        """Of each restore."""
        ...

    def state_of(self, process: ProcessRef) -> CudaState | None: ...


class FakeNode:
    def __init__(self) -> None:
        self._fake = FakeCuda()
        self._pid = 100
        self.cuda: CudaProcesses = self._fake

    def start(self, *, uses_cuda: bool = True) -> ProcessRef:
        self._pid += 1
        state = CudaState.RUNNING if uses_cuda else None
        return self._fake.add(ProcessRef(pid=self._pid, started=7), state)

    def fault(self, action: str, words: str, process: ProcessRef) -> None:
        self._fake.fault(action, words, process=process)

    def mappings(self) -> tuple[tuple[DeviceMapping, ...], ...]:
        return tuple(call.mapping for call in self._fake.calls() if call.action == "restore")

    def state_of(self, process: ProcessRef) -> CudaState | None:
        return self._fake.state_of(process)


class LibraryNode:
    def __init__(self, simulation: CudaSimulation, run_dir: Path, stack: ExitStack) -> None:
        programs = DriverPrograms(driver_root=simulation.driver_root, run_dir=run_dir)
        self.cuda: CudaProcesses = CudaCheckpoint(programs, SystemClock())
        self._simulation = simulation
        self._stack = stack
        self._keys: dict[ProcessRef, str] = {}

    def start(self, *, uses_cuda: bool = True) -> ProcessRef:
        key = f"k{len(self._keys)}" if uses_cuda else ""
        process = self._stack.enter_context(self._simulation.process(key))
        self._keys[process] = key
        return process

    def fault(self, action: str, words: str, process: ProcessRef) -> None:
        name = "get-state" if action == "state" else action
        self._simulation.fault(name, words, key=self._keys[process])

    def mappings(self) -> tuple[tuple[DeviceMapping, ...], ...]:
        calls = [call for call in self._simulation.calls() if call.action == "restore"]
        return tuple(tuple(map(_mapping, call.arguments.split())) for call in calls)

    def state_of(self, process: ProcessRef) -> CudaState | None:
        return self._simulation.state_of(process)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> CudaSimulation:
    return CudaSimulation(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(params=["memory", "libcuda"])
def node(
    request: pytest.FixtureRequest, simulation: CudaSimulation, tmp_path: Path
) -> Iterator[Node]:
    if request.param == "memory":
        yield FakeNode()
        return
    simulation.clear()
    with ExitStack() as stack:
        yield LibraryNode(simulation, tmp_path, stack)


def test_process_goes_all_the_way_and_back(node: Node) -> None:
    process = node.start()
    seen = [node.cuda.state(process, _soon())]
    node.cuda.lock(process, _soon())
    seen.append(node.cuda.state(process, _soon()))
    node.cuda.checkpoint(process, _soon())
    seen.append(node.cuda.state(process, _soon()))
    node.cuda.restore(process, (), _soon())
    seen.append(node.cuda.state(process, _soon()))
    node.cuda.unlock(process, _soon())
    seen.append(node.cuda.state(process, _soon()))
    assert seen == [
        CudaState.RUNNING,
        CudaState.LOCKED,
        CudaState.CHECKPOINTED,
        CudaState.LOCKED,
        CudaState.RUNNING,
    ]
    assert node.mappings() == ((),)


def test_process_without_cuda_has_no_state(node: Node) -> None:
    assert node.cuda.state(node.start(uses_cuda=False), _soon()) is None


def test_processes_have_states_of_their_own(node: Node) -> None:
    first, second = node.start(), node.start()
    node.cuda.lock(first, _soon())
    assert node.cuda.state(first, _soon()) is CudaState.LOCKED
    assert node.cuda.state(second, _soon()) is CudaState.RUNNING


@pytest.mark.parametrize("action", ["checkpoint", "restore", "unlock"])
def test_step_is_refused_and_changes_nothing_when_it_is_not_its_turn(
    node: Node, action: str
) -> None:
    process = node.start()
    with pytest.raises(CudaFailed, match=r"CUDA_ERROR_ILLEGAL_STATE \(401\)"):
        _calls(node.cuda)[action](process, _soon())
    assert node.cuda.state(process, _soon()) is CudaState.RUNNING


def test_lock_is_refused_when_somebody_locked_it_before(node: Node) -> None:
    process = node.start()
    node.cuda.lock(process, _soon())
    with pytest.raises(CudaFailed, match="ILLEGAL_STATE"):
        node.cuda.lock(process, _soon())
    assert node.cuda.state(process, _soon()) is CudaState.LOCKED


def test_lock_is_out_of_time_when_the_work_does_not_end(node: Node) -> None:
    process = node.start()
    node.fault("lock", "busy", process)
    with pytest.raises(OutOfTime):
        node.cuda.lock(process, _in(1.0))
    assert node.cuda.state(process, _soon()) is CudaState.RUNNING


def test_mapping_is_passed_as_it_is(node: Node) -> None:
    process = node.start()
    node.cuda.lock(process, _soon())
    node.cuda.checkpoint(process, _soon())
    node.cuda.restore(process, MAPPING, _soon())
    assert node.mappings() == (MAPPING,)


@pytest.mark.parametrize("action", ["state", "lock"])
def test_call_that_hangs_is_out_of_time(node: Node, action: str) -> None:
    process = node.start()
    node.fault(action, "hang", process)
    with pytest.raises(OutOfTime):
        _calls(node.cuda)[action](process, _in(0.5))


@pytest.mark.parametrize("action", ["state", "lock"])
def test_call_that_crashes_fails(node: Node, action: str) -> None:
    process = node.start()
    node.fault(action, "crash", process)
    with pytest.raises(CudaFailed, match="SIGSEGV"):
        _calls(node.cuda)[action](process, _soon())


def test_failure_of_checkpoint_may_leave_a_failed_process(node: Node) -> None:
    process = node.start()
    node.cuda.lock(process, _soon())
    node.fault("checkpoint", "fail 801 3", process)
    with pytest.raises(CudaFailed, match="801"):
        node.cuda.checkpoint(process, _soon())
    assert node.cuda.state(process, _soon()) is CudaState.FAILED


@pytest.mark.parametrize("action", ["state", "lock", "checkpoint", "restore", "unlock"])
def test_process_with_another_start_has_ended(node: Node, action: str) -> None:
    process = node.start()
    node.cuda.lock(process, _soon())
    later = ProcessRef(pid=process.pid, started=process.started + 1)
    with pytest.raises(AdapterError, match=f"process {process.pid} has ended") as raised:
        _calls(node.cuda)[action](later, _soon())
    assert not isinstance(raised.value, CudaFailed | OutOfTime)
    assert node.state_of(process) is CudaState.LOCKED


def _calls(cuda: CudaProcesses) -> dict[str, Callable[[ProcessRef, Deadline], object]]:
    return {
        "state": cuda.state,
        "lock": cuda.lock,
        "checkpoint": cuda.checkpoint,
        "restore": lambda process, deadline: cuda.restore(process, (), deadline),
        "unlock": cuda.unlock,
    }


def _soon() -> Deadline:
    return _in(60.0)


def _in(seconds: float) -> Deadline:
    return Deadline(SystemClock().monotonic_s() + seconds)


def _mapping(text: str) -> DeviceMapping:
    old, new = (
        f"GPU-{each[:8]}-{each[8:12]}-{each[12:16]}-{each[16:20]}-{each[20:]}"
        for each in text.split("=")
    )
    return DeviceMapping(old=GpuUuid(old), new=GpuUuid(new))
