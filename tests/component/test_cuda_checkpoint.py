"""The helper processes in which libcuda is called."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from dra_driver.adapters import cuda_helper
from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.cuda_calls import _killed, call_driver
from dra_driver.adapters.cuda_checkpoint import CudaCheckpoint
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.errors import AdapterError, CudaFailed, OutOfTime
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from tests.builders import uuid
from tests.fakes.cuda_processes import CudaSimulation, build_library, own_process
from tests.fakes.proc import FakeProc
from tests.waiting import descriptors, eventually

ELSEWHERE = (DeviceMapping(old=uuid(0), new=uuid(1)),)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> CudaSimulation:
    return CudaSimulation(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def simulation(built: CudaSimulation) -> CudaSimulation:
    built.clear()
    return built


@pytest.fixture
def process(simulation: CudaSimulation) -> Iterator[ProcessRef]:
    """One that uses CUDA."""
    with simulation.process("one") as process:
        yield process


@pytest.fixture
def cuda(simulation: CudaSimulation, tmp_path: Path) -> CudaCheckpoint:
    return _cuda(simulation.driver_root, tmp_path)


def test_no_helper_is_started_for_a_process_without_libcuda(
    cuda: CudaCheckpoint, simulation: CudaSimulation
) -> None:
    with simulation.process(library=False) as process:
        assert cuda.state(process, _soon()) is None
    assert simulation.calls() == ()


def test_process_that_loaded_libcuda_and_does_not_use_it_has_no_state(
    cuda: CudaCheckpoint, simulation: CudaSimulation
) -> None:
    with simulation.process("") as process:
        assert cuda.state(process, _soon()) is None
    assert [call.action for call in simulation.calls()] == ["init", "get-restore-tid"]


@pytest.mark.parametrize("why", ["a device is open", "its maps cannot be read"])
def test_driver_is_asked_of_a_process_without_libcuda_when(
    simulation: CudaSimulation, tmp_path: Path, why: str
) -> None:
    proc = FakeProc(tmp_path / "proc")
    own = own_process()
    proc.add(own.pid, started=own.started)
    if why == "a device is open":
        (proc.path / f"{own.pid}/maps").write_text("7f00-7f01 r-xp 00000000 08:01 5 /lib/libc.so\n")
        (proc.path / f"{own.pid}/fd").mkdir()
        (proc.path / f"{own.pid}/fd/3").symlink_to("/dev/nvidia0")
        (proc.path / f"{own.pid}/fd/2").symlink_to("/dev/null")
    cuda = _cuda(simulation.driver_root, tmp_path, proc=proc.path)
    assert cuda.state(own, _soon()) is None
    assert [call.action for call in simulation.calls()] == ["init", "get-restore-tid"]


def test_helper_is_gone_when_its_time_is_over(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    # The deadline may come before the call: then there is nothing to see, and a longer one is due.
    def hung() -> bool:
        deadlines.append(deadlines[-1] * 2)
        simulation.fault("lock", "hang")
        with pytest.raises(OutOfTime, match=r"so what it did is not known"):
            cuda.lock(process, _in(deadlines[-1]))
        return any(call.action == "lock" for call in simulation.calls())

    deadlines = [0.2]
    eventually(hung, 60, "the helper comes as far as its call")
    assert not psutil.pid_exists(simulation.calls()[-1].caller)


def test_nothing_is_left_of_helpers(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    before = descriptors(), psutil.Process().children()
    for words, seconds in (("fail 2", 60.0), ("crash", 60.0), ("hang", 0.5)):
        simulation.fault("lock", words)
        with pytest.raises((CudaFailed, OutOfTime)):
            cuda.lock(process, _in(seconds))
    assert (descriptors(), psutil.Process().children()) == before


def test_helper_inherits_no_files(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    with Path(os.devnull).open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        assert cuda.state(process, _soon()) is CudaState.RUNNING
    first = simulation.calls()[0]
    assert (first.action, first.arguments) == ("init", "")


def test_helper_ends_without_the_library(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    assert cuda.state(process, _soon()) is CudaState.RUNNING
    actions = [call.action for call in simulation.calls()]
    assert actions == ["init", "get-restore-tid", "get-state"]


def test_helper_that_cannot_be_killed_is_told() -> None:
    own = os.getpid()
    text = _killed("cuInit", own, 3.0, Path("/proc"))
    assert f"helper process {own} is still there, held by the kernel" in text
    assert "still there" not in _killed("cuInit", 2**22 + 1, 3.0, Path("/proc"))


def test_nothing_is_started_when_no_time_is_left(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    with pytest.raises(OutOfTime, match="no time is left to checkpoint"):
        cuda.checkpoint(process, _in(-1.0))
    assert simulation.calls() == ()


def test_driver_has_less_time_for_a_lock_than_its_helper(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    cuda.lock(process, _in(100.0))
    (call,) = [call for call in simulation.calls() if call.action == "lock"]
    assert 1_000 < int(call.arguments) <= 80_000


def test_process_that_the_driver_brought_down_has_ended(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    simulation.fault("lock", "kill")
    with pytest.raises(AdapterError, match=f"process {process.pid} has ended"):
        cuda.lock(process, _soon())


def test_driver_that_does_not_start_is_no_failure_of_the_process(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    simulation.fault("init", "fail 100")
    with pytest.raises(AdapterError, match=r"cuInit gives CUDA_ERROR_NO_DEVICE \(100\)") as raised:
        cuda.state(process, _soon())
    assert not isinstance(raised.value, CudaFailed)


@pytest.mark.parametrize(
    ("action", "words", "text"),
    [
        # It may be about to use CUDA: to take it for a process without would lose its state.
        ("get-restore-tid", "fail 3", r"GetRestoreThreadId gives an unknown result \(3\)"),
        ("get-state", "fail 999", r"GetState gives an unknown result \(999\)"),
        ("get-state", "fail 0 4", "state 4 of process [0-9]+, which this version does not know"),
        ("get-state", "fail 1", r"GetState gives CUDA_ERROR_INVALID_VALUE \(1\)"),
    ],
)
def test_state_that_the_driver_does_not_tell_is_a_failure(
    cuda: CudaCheckpoint,
    simulation: CudaSimulation,
    process: ProcessRef,
    action: str,
    words: str,
    text: str,
) -> None:
    simulation.fault(action, words)
    with pytest.raises(CudaFailed, match=text):
        cuda.state(process, _soon())


@pytest.mark.parametrize("code", [1, 2, 304, 801])
def test_every_number_but_zero_is_a_failure(
    cuda: CudaCheckpoint,
    simulation: CudaSimulation,
    process: ProcessRef,
    code: int,
) -> None:
    simulation.fault("checkpoint", f"fail {code}")
    with pytest.raises(
        CudaFailed, match=rf"cuCheckpointProcessCheckpoint gives .*\({code}\)"
    ) as raised:
        cuda.checkpoint(process, _soon())
    # CUDA_ERROR_NOT_SUPPORTED
    assert raised.value.permanent is (code == 801)


def test_other_gpus_are_refused_when_the_driver_knows_of_none(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    cuda.lock(process, _soon())
    cuda.checkpoint(process, _soon())
    (simulation.state / "version").write_text("12090")
    with pytest.raises(AdapterError, match=r"driver 580 or newer, and this one runs CUDA 12\.9"):
        cuda.restore(process, ELSEWHERE, _soon())
    assert simulation.state_of(process) is CudaState.CHECKPOINTED
    cuda.restore(process, (), _soon())
    assert simulation.state_of(process) is CudaState.LOCKED


def test_what_is_no_whole_gpu_is_refused_as_a_target(
    cuda: CudaCheckpoint, simulation: CudaSimulation, process: ProcessRef
) -> None:
    part = DeviceMapping(old=uuid(0), new=GpuUuid("MIG-01234567-89ab-cdef-0123-456789abcdef"))
    with pytest.raises(AdapterError, match=r"MIG-01234567.* is not the UUID of a whole GPU"):
        cuda.restore(process, (part,), _soon())
    assert simulation.calls() == ()


def test_driver_without_the_api_says_which_has_it(
    simulation: CudaSimulation, tmp_path: Path
) -> None:
    _expect_no_driver(
        simulation,
        tmp_path,
        lambda library: build_library(library, simulation.state, old=True),
        "has no cuCheckpointProcessGetRestoreThreadId.*driver 570",
        permanent=True,
    )


def test_library_that_cannot_be_loaded_says_so(simulation: CudaSimulation, tmp_path: Path) -> None:
    def write(library: Path) -> None:
        library.parent.mkdir(parents=True)
        library.write_text("rubbish")

    _expect_no_driver(simulation, tmp_path, write, "cannot be loaded", permanent=False)


def test_missing_library_says_so(simulation: CudaSimulation, tmp_path: Path) -> None:
    _expect_no_driver(simulation, tmp_path, lambda _: None, "no libcuda.so.1", permanent=False)


def test_helper_that_fails_by_itself_shows_its_last_words(
    simulation: CudaSimulation, tmp_path: Path
) -> None:
    programs = DriverPrograms(driver_root=simulation.driver_root, run_dir=tmp_path)
    with pytest.raises(AdapterError, match=r"ended \(status 1\) in cuInit: ValueError"):
        call_driver(programs, cuda_helper.LOCK, ("no number",), timeout_s=60.0)


def _expect_no_driver(
    simulation: CudaSimulation,
    folder: Path,
    make: Callable[[Path], None],
    text: str,
    *,
    permanent: bool,
) -> None:
    make(folder / "driver/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    with simulation.process("one") as process, pytest.raises(AdapterError, match=text) as raised:
        _cuda(folder / "driver", folder / "run").state(process, _soon())
    assert raised.value.permanent is permanent


def _cuda(driver_root: Path, run_dir: Path, *, proc: Path = Path("/proc")) -> CudaCheckpoint:
    programs = DriverPrograms(driver_root=driver_root, run_dir=run_dir)
    return CudaCheckpoint(programs, SystemClock(), proc=proc)


def _soon() -> Deadline:
    return _in(60.0)


def _in(seconds: float) -> Deadline:
    return Deadline(SystemClock().monotonic_s() + seconds)
