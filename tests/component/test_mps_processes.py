"""Processes that go by the names of MPS, told apart by their environments."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_control import ControlProgram
from dra_driver.adapters.mps_daemons import ProgramDaemons
from dra_driver.adapters.mps_processes import CONTROL, SERVER, Processes
from dra_driver.plan.mps_paths import pipe_folder
from tests.builders import uuid
from tests.waiting import eventually

GPU = uuid(0)
Start = Callable[..., int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a process by one of the names; its keywords are its environment."""
    running: list[subprocess.Popen[bytes]] = []
    sleep = shutil.which("sleep")
    assert sleep is not None

    def started(name: str, *, pipes: str = "/nowhere", **environment: str) -> int:
        program = tmp_path / name
        if not program.exists():
            shutil.copy(sleep, program)
        environment["CUDA_MPS_PIPE_DIRECTORY"] = pipes
        process = subprocess.Popen([program, "60"], env=environment)
        running.append(process)
        known = Processes()
        eventually(
            lambda: any(
                each.process.pid == process.pid and each.environment for each in known.mps()
            ),
            60,
            "it bears its name",
        )
        return process.pid

    yield started
    for process in running:
        process.kill()
        process.wait()


def _daemons(run_dir: Path) -> ProgramDaemons:
    programs = DriverPrograms(driver_root=run_dir / "none", run_dir=run_dir)
    return ProgramDaemons(
        programs, ControlProgram(programs, run_dir=run_dir), Processes(), run_dir=run_dir
    )


@pytest.mark.parametrize("name", [CONTROL, SERVER])
@pytest.mark.parametrize(
    ("visible", "counts"),
    [
        (None, True),
        (GPU, True),
        (GPU[:12], True),
        (f"{uuid(1)},{GPU}", True),
        ("0", True),
        ("7", True),
        (uuid(1), False),
        (f"{uuid(1)}, {uuid(2)}", False),
        ("", False),
    ],
)
def test_stranger_counts_when_it_may_use_the_gpu(
    start: Start, tmp_path: Path, name: str, visible: str | None, *, counts: bool
) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    pid = start(name, **environment)
    assert (pid in _daemons(tmp_path / "run").foreign(GPU)) is counts


def test_our_own_are_not_foreign(start: Start, tmp_path: Path) -> None:
    pid = start(SERVER, pipes=pipe_folder(str(tmp_path / "run"), GPU))
    assert pid not in _daemons(tmp_path / "run").foreign(GPU)
    assert pid in _daemons(tmp_path / "run2").foreign(GPU)


def test_kill_ends_the_daemon_and_its_servers_and_nothing_else(
    start: Start, tmp_path: Path
) -> None:
    own = pipe_folder(str(tmp_path / "run"), GPU)
    daemon, server = start(CONTROL, pipes=own), start(SERVER, pipes=own)
    others = [
        start(CONTROL, pipes=pipe_folder(str(tmp_path / "run"), uuid(1))),
        start(SERVER, pipes=f"{own}2"),
        start(SERVER),
    ]
    daemons, processes = _daemons(tmp_path / "run"), Processes()
    found = daemons.find(GPU)
    assert found is not None
    assert found.pid == daemon
    daemons.kill(GPU)
    assert processes.started(daemon) is processes.started(server) is None
    assert all(processes.started(pid) is not None for pid in others)
    assert daemons.find(GPU) is None


def test_daemon_is_not_taken_for_another_process_when_its_pid_is_given_anew(
    start: Start, tmp_path: Path
) -> None:
    """What stands at the pid started later: the one that is known has ended."""
    start(CONTROL, pipes=pipe_folder(str(tmp_path / "run"), GPU))
    daemons = _daemons(tmp_path / "run")
    found = daemons.find(GPU)
    assert found is not None
    assert daemons.wait({GPU: found}, 0.0) == ()
    earlier = type(found)(pid=found.pid, started=found.started - 1)
    assert not Processes().runs(earlier)
    assert daemons.wait({GPU: earlier}, 60) == (GPU,)


def test_helper_that_passes_on_commands_is_no_daemon(tmp_path: Path) -> None:
    program = tmp_path / CONTROL
    shutil.copy(shutil.which("cat") or "", program)
    pipes = pipe_folder(str(tmp_path / "run"), GPU)
    with subprocess.Popen(
        [program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"CUDA_MPS_PIPE_DIRECTORY": pipes},
    ) as helper:
        assert helper.stdin is not None
        assert helper.stdout is not None
        helper.stdin.write(b"x\n")
        helper.stdin.flush()
        assert helper.stdout.readline() == b"x\n"
        assert _daemons(tmp_path / "run").find(GPU) is None
        assert helper.pid not in _daemons(tmp_path / "run2").foreign(GPU)
        helper.kill()


def test_process_that_has_ended_has_no_start() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Processes().started(process.pid) is None
    process.wait()
    assert Processes().started(process.pid) is None
    assert Processes().started(os.getpid()) is not None
