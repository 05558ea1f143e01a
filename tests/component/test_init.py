"""The first process of a container of mpsd, with scripts in mpsd's place."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import native_programs
from tests.waiting import eventually

_STARTS = "echo $$ >>pids; "
_LASTING = "exec sleep 600"


@pytest.fixture(scope="session")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return native_programs.build(tmp_path_factory.mktemp("native"))["gpuslice-init"]


@contextmanager
def _running(init: Path, script: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([init, "sh", "-c", script], cwd=folder, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in _pids(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _pids(folder: Path, name: str = "pids") -> list[int]:
    with suppress(FileNotFoundError):
        return [int(line) for line in (folder / name).read_text().split()]
    return []


def _parent(pid: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in fields if line.startswith("PPid:"))
    return None


def test_program_starts_again_when_it_is_killed_and_its_orphans_live_on(
    init: Path, tmp_path: Path
) -> None:
    script = _STARTS + "setsid sleep 600 & echo $! >>orphans; " + _LASTING
    with _running(init, script, tmp_path) as process:
        orphan = eventually(lambda: _pids(tmp_path, "orphans"), 30, "an orphan to be")[0]
        try:
            os.kill(_pids(tmp_path)[0], signal.SIGKILL)
            eventually(lambda: len(_pids(tmp_path)) == 2, 30, "it is started again")
            assert _parent(orphan) == process.pid
            os.kill(orphan, signal.SIGKILL)
            eventually(lambda: _parent(orphan) is None, 30, "the orphan is reaped")
            assert process.poll() is None
        finally:
            for pid in _pids(tmp_path, "orphans"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert "ended with status 137, it starts again in 1 s" in (tmp_path / "log").read_text()


def test_program_starts_again_ever_later_when_it_ends_by_itself(init: Path, tmp_path: Path) -> None:
    with _running(init, _STARTS + "exit 3", tmp_path) as process:
        log = tmp_path / "log"
        eventually(lambda: log.read_text().count("status 3") == 2, 30, "it is started twice")
        lines = log.read_text().splitlines()
        assert [line.rpartition("in ")[2] for line in lines] == ["1 s", "2 s"]
        process.terminate()
        assert process.wait(30) == 3
    assert len(_pids(tmp_path)) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_signal_ends_it_with_the_status_of_its_program(
    init: Path, tmp_path: Path, number: signal.Signals
) -> None:
    script = f"trap 'exit 7' {number.value}; " + _STARTS + "while :; do sleep 0.05; done"
    with _running(init, script, tmp_path) as process:
        eventually(lambda: _pids(tmp_path), 30, "it runs")
        process.send_signal(number)
        assert process.wait(30) == 7
    assert len(_pids(tmp_path)) == 1


def test_signal_that_ends_the_program_shows_in_the_status(init: Path, tmp_path: Path) -> None:
    with _running(init, _STARTS + _LASTING, tmp_path) as process:
        eventually(lambda: _pids(tmp_path), 30, "it runs")
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM


def test_signal_for_a_look_inside_is_passed_on_and_ends_nothing(init: Path, tmp_path: Path) -> None:
    script = "trap 'echo 1 >>seen' USR2; " + _STARTS + "while :; do sleep 0.05; done"
    with _running(init, script, tmp_path) as process:
        eventually(lambda: _pids(tmp_path), 30, "it runs")
        process.send_signal(signal.SIGUSR2)
        eventually(lambda: _pids(tmp_path, "seen"), 30, "the program sees it")
        assert process.poll() is None
        assert len(_pids(tmp_path)) == 1


def test_init_says_so_when_there_is_nothing_to_start(init: Path, tmp_path: Path) -> None:
    alone = subprocess.run([init], capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stderr[:21]) == (2, "usage: gpuslice-init ")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([init, "/no/such/program"], stderr=log)
    try:
        text = "cannot start /no/such/program: No such file"
        eventually(lambda: text in (tmp_path / "log").read_text(), 30, "the reason is told")
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(30) == 127


def test_init_needs_nothing_of_the_machine_it_runs_on(init: Path) -> None:
    content = init.read_bytes()
    (at,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    kinds = {struct.unpack_from("<I", content, at + size * place)[0] for place in range(count)}
    loaded, interpreter = 1, 3
    assert loaded in kinds
    assert interpreter not in kinds
