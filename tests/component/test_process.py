"""Child processes as they are started, watched and ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dra_driver.adapters.process import ChildProcess, Finished, run_program, start_process
from dra_driver.errors import AdapterError
from tests.waiting import eventually

SLEEP = "import time; print('up', flush=True); time.sleep(60)"


@contextmanager
def _child(folder: Path, code: str, **environment: str) -> Iterator[ChildProcess]:
    child = start_process(
        [sys.executable, "-c", code],
        name="child",
        log=folder / "log",
        environment=environment,
    )
    try:
        yield child
    finally:
        child.kill()


def test_process_has_its_output_in_a_file_and_its_own_environment(tmp_path: Path) -> None:
    code = "import os, sys; print(sorted(os.environ)); print('e', file=sys.stderr); sys.exit(3)"
    with _child(tmp_path, code, PYTHONUNBUFFERED="1", LC_CTYPE="C.UTF-8") as child:
        assert child.wait(20) == 3
        assert child.status() == 3
    assert (tmp_path / "log").read_text() == "['LC_CTYPE', 'PYTHONUNBUFFERED']\ne\n"


def test_process_appends_to_its_log(tmp_path: Path) -> None:
    for _ in range(2):
        with _child(tmp_path, "print('x')") as child:
            child.wait(20)
    assert (tmp_path / "log").read_text() == "x\nx\n"


def test_process_ends_by_the_signal_that_it_gets(tmp_path: Path) -> None:
    with _child(tmp_path, SLEEP) as child:
        eventually((tmp_path / "log").read_text, 20, "it is up")
        assert child.status() is None
        assert os.getpgid(child.pid) == child.pid
        child.signal(signal.SIGTERM)
        assert child.wait(20) == -signal.SIGTERM
        child.signal(signal.SIGTERM)
        child.kill()


def test_process_tells_that_it_still_runs(tmp_path: Path) -> None:
    with _child(tmp_path, SLEEP) as child:
        with pytest.raises(AdapterError, match=rf"child \(process {child.pid}\) still runs"):
            child.wait(0.01)
        child.kill()
        assert child.status() == -signal.SIGKILL


def test_process_names_the_program_that_cannot_be_started(tmp_path: Path) -> None:
    nothing: Mapping[str, str] = {}
    with pytest.raises(AdapterError, match="cannot start child"):
        start_process(
            [str(tmp_path / "no")], name="child", log=tmp_path / "log", environment=nothing
        )


def _run(code: str, *, timeout_s: float = 60.0, text: str = "", **environment: str) -> Finished:
    return run_program(
        [sys.executable, "-c", code],
        name="program",
        environment=environment,
        timeout_s=timeout_s,
        text=text,
    )


def test_program_gets_its_input_and_its_outputs_are_told_apart() -> None:
    code = "import sys; print(sys.stdin.read()); print('e', file=sys.stderr); sys.exit(3)"
    assert _run(code, text="a\nb") == Finished(status=3, output="a\nb\n", errors="e\n")


def test_program_has_its_own_environment_and_session() -> None:
    code = "import os; print(sorted(os.environ), os.getsid(0) == os.getpid())"
    assert _run(code, LC_CTYPE="C.UTF-8").output == "['LC_CTYPE'] True\n"


def test_program_that_reads_nothing_is_no_error() -> None:
    assert _run("import os; os.close(0)", text="x" * 1000).status == 0


def test_program_that_writes_without_end_is_cut_and_ends() -> None:
    done = _run("import sys; sys.stdout.write('x' * 1_000_000)")
    assert done.status == 0
    assert done.output == "x" * 65536


def test_program_is_killed_with_all_it_started_when_its_time_is_over(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "print('started', flush=True)\n"
        "time.sleep(60)\n"
    )
    done = _run(code, timeout_s=3.0)
    assert done.status is None
    assert done.output.startswith("started")
    eventually(lambda: not _alive(int(pid.read_text())), 30, "the grandchild is gone")


def test_program_that_does_not_exist_says_so() -> None:
    with pytest.raises(AdapterError, match="cannot start program"):
        run_program(["/nonexistent"], name="program", environment={}, timeout_s=1.0)


def test_process_in_a_session_of_its_own(tmp_path: Path) -> None:
    child = start_process(
        [sys.executable, "-c", SLEEP],
        name="child",
        log=tmp_path / "log",
        environment={},
        session=True,
    )
    try:
        assert os.getsid(child.pid) == child.pid
    finally:
        child.kill()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
