"""Child processes as they are started, watched and ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from dra_driver.adapters.process import ChildProcess, start_process
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
