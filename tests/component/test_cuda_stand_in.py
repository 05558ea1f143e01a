"""The stand-in for cuda-checkpoint, called as CRIU's plugin calls the real one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.cuda_checkpoint import CudaCheckpoint
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.model.deadline import Deadline
from tests.fakes.cuda_processes import CudaSimulation, build_program


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> CudaSimulation:
    return CudaSimulation(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, built: CudaSimulation) -> Path:
    path = tmp_path_factory.mktemp("program") / "cuda-checkpoint"
    build_program(path, built.state)
    return path


@pytest.fixture
def simulation(built: CudaSimulation) -> CudaSimulation:
    built.clear()
    return built


@pytest.fixture
def process(simulation: CudaSimulation) -> Iterator[ProcessRef]:
    with simulation.process("one") as process:
        yield process


def test_actions_go_all_the_way_and_back(program: Path, process: ProcessRef) -> None:
    seen = [_told(program, "--get-state", process)]
    for action in ("lock", "checkpoint", "restore", "unlock"):
        assert _act(program, action, process) == 0
        seen.append(_told(program, "--get-state", process))
    assert seen == ["running", "locked", "checkpointed", "locked", "running"]


def test_state_is_the_one_that_libcuda_tells(
    program: Path, simulation: CudaSimulation, process: ProcessRef, tmp_path: Path
) -> None:
    _act(program, "lock", process)
    programs = DriverPrograms(driver_root=simulation.driver_root, run_dir=tmp_path)
    clock = SystemClock()
    state = CudaCheckpoint(programs, clock).state(process, Deadline(clock.monotonic_s() + 60))
    assert state is CudaState.LOCKED


def test_restore_thread_is_one_of_its_own_and_leads_to_its_process(
    program: Path, process: ProcessRef
) -> None:
    thread = int(_told(program, "--get-restore-tid", process))
    assert thread != process.pid
    assert Path(f"/proc/{process.pid}/task/{thread}").exists()
    _act(program, "lock", process)
    by_thread = ProcessRef(pid=thread, started=process.started)
    assert _told(program, "--get-state", by_thread) == "locked"


def test_process_without_cuda_has_no_restore_thread(
    program: Path, simulation: CudaSimulation
) -> None:
    with simulation.process() as process:
        assert _run(program, "--get-restore-tid", "--pid", str(process.pid)).returncode == 1


def test_failure_ends_with_the_number_of_cuda(
    program: Path, simulation: CudaSimulation, process: ProcessRef
) -> None:
    simulation.fault("lock", "fail 2", key="one")
    assert _act(program, "lock", process) == 2
    assert _act(program, "restore", process) == 255  # ILLEGAL_STATE is 401


def test_process_that_comes_after_a_checkpoint_is_restored_from_it(
    program: Path, simulation: CudaSimulation, process: ProcessRef
) -> None:
    _act(program, "lock", process)
    _act(program, "checkpoint", process)
    with simulation.process("one") as restored, simulation.process("two") as other:
        assert _told(program, "--get-state", restored) == "checkpointed"
        assert _told(program, "--get-state", other) == "running"


def test_help_shows_actions_unless_it_is_old(
    program: Path, simulation: CudaSimulation, tmp_path: Path
) -> None:
    build_program(tmp_path / "old", simulation.state, old=True)
    assert "--action" in _run(program, "-h").stdout
    assert "--action" not in _run(tmp_path / "old", "-h").stdout


def _act(program: Path, action: str, process: ProcessRef) -> int:
    arguments = ("--action", action, "--pid", str(process.pid))
    timeout = ("--timeout", "10000") if action == "lock" else ()
    return _run(program, *arguments, *timeout).returncode


def _told(program: Path, what: str, process: ProcessRef) -> str:
    done = _run(program, what, "--pid", str(process.pid))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
