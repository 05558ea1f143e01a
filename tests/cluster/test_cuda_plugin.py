"""CRIU with its own plugin for CUDA, on a driver and a cuda-checkpoint whose state is in files."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.cuda_checkpoint import CudaCheckpoint
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.process_stat import start_time
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.model.deadline import Deadline
from tests.fakes.cuda_processes import CudaSimulation, build_program, build_user
from tests.kube.build import criu_folder
from tests.waiting import eventually

FORCED = {"CRIU_FAULT": "138"}
"""CRIU's plugin goes on where there is no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One process that uses CUDA, and what takes it away and brings it back."""

    folder: Path
    simulation: CudaSimulation
    cuda: CudaCheckpoint
    process: ProcessRef

    def dump(self) -> int:
        """Leave it running; gives CRIU's exit status."""
        return self._criu("dump", "--tree", str(self.process.pid), "--leave-running")

    def restore(self) -> int:
        """Bring it back in place of the one that was dumped; gives CRIU's exit status."""
        _end(self.process.pid)
        (self.simulation.state / "calls").unlink()
        return self._criu("restore", "--restore-detached")

    def state(self) -> CudaState | None:
        return self.cuda.state(_ref(self.process.pid), _soon())

    def actions(self) -> list[str]:
        """What CRIU's plugin did, without what it asked."""
        calls = [call.action for call in self.simulation.calls()]
        return [
            action for action in calls if action not in ("init", "get-state", "get-restore-tid")
        ]

    def _criu(self, command: str, *arguments: str) -> int:
        criu = criu_folder()
        images = self.folder / "images"
        images.mkdir(exist_ok=True)
        log = f"{command}.log"
        options = ("-D", str(images), "-L", str(criu / "plugins"), "-o", log, "-v4")
        done = subprocess.run(
            [str(criu / "criu"), command, *options, *arguments],
            env={**os.environ, **FORCED, "PATH": f"{self.folder}:{os.environ['PATH']}"},
            timeout=60,
            check=False,
        )
        print((images / log).read_text(errors="replace")[-4000:])
        return done.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(scope="module")
def simulation(folder: Path) -> CudaSimulation:
    simulation = CudaSimulation(folder)
    build_program(folder / "cuda-checkpoint", simulation.state)
    build_user(folder / "user")
    return simulation


@pytest.fixture
def bench(folder: Path, simulation: CudaSimulation, tmp_path: Path) -> Iterator[Bench]:
    simulation.clear()
    programs = DriverPrograms(driver_root=simulation.driver_root, run_dir=tmp_path)
    cuda = CudaCheckpoint(programs, SystemClock())
    running = subprocess.Popen(
        [folder / "user", simulation.library],
        env={"FAKE_CUDA": "one"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    threads = Path(f"/proc/{running.pid}/task")
    eventually(lambda: len(list(threads.iterdir())) == 2, 30, "the process has both threads")
    yield Bench(folder=folder, simulation=simulation, cuda=cuda, process=_ref(running.pid))
    _end(running.pid)
    running.wait()


def test_process_is_on_its_gpu_after_a_dump_and_after_a_restore(bench: Bench) -> None:
    assert bench.dump() == 0
    assert bench.actions() == ["lock", "checkpoint", "restore", "unlock"]
    assert bench.state() is CudaState.RUNNING
    assert bench.restore() == 0
    assert bench.actions() == ["restore", "unlock"]
    assert bench.state() is CudaState.RUNNING


def test_failed_checkpoint_leaves_the_process_locked(bench: Bench) -> None:
    bench.simulation.fault("checkpoint", "fail 2")
    assert bench.dump() != 0
    # The plugin restores what was never checkpointed; as that fails, it does not unlock it either.
    assert bench.actions() == ["lock", "checkpoint", "restore"]
    assert bench.state() is CudaState.LOCKED
    bench.cuda.unlock(bench.process, _soon())
    assert bench.state() is CudaState.RUNNING


def test_failed_restore_is_told_by_the_state_alone(bench: Bench) -> None:
    assert bench.dump() == 0
    bench.simulation.fault("restore", "fail 2")
    assert bench.restore() == 0
    assert bench.actions() == ["restore"]
    assert bench.state() is CudaState.CHECKPOINTED


def test_plugin_leaves_alone_what_the_driver_checkpointed_before(bench: Bench) -> None:
    bench.cuda.lock(bench.process, _soon())
    bench.cuda.checkpoint(bench.process, _soon())
    (bench.simulation.state / "calls").unlink()
    assert bench.dump() == 0
    assert bench.actions() == []
    assert bench.state() is CudaState.CHECKPOINTED
    bench.cuda.restore(bench.process, (), _soon())
    bench.cuda.unlock(bench.process, _soon())
    assert bench.state() is CudaState.RUNNING


def _ref(pid: int) -> ProcessRef:
    started = start_time(Path("/proc"), pid)
    assert started is not None
    return ProcessRef(pid=pid, started=started)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, SIGKILL)
    with suppress(ChildProcessError):  # of one that CRIU brought back
        os.waitpid(pid, 0)
    eventually(lambda: start_time(Path("/proc"), pid) is None, 30, "the process is gone")


def _soon() -> Deadline:
    return Deadline(SystemClock().monotonic_s() + 60.0)
