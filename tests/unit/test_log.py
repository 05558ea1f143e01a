from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from dra_driver import log
from dra_driver.log import LogFormat, LogLevel


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What was written since the last call; the logging of the process is put back afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield lambda: capsys.readouterr().err
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    structlog.reset_defaults()


def test_log_writes_one_json_object_a_line(stderr: Callable[[], str]) -> None:
    logger = log.get("dra_driver.example")
    log.configure(LogLevel.INFO, LogFormat.JSON)
    logger.info("Prepared the claim", claim="team-a/claim-1", gpus=2, path=object)
    line = json.loads(stderr())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "Prepared the claim",
        "level": "info",
        "logger": "dra_driver.example",
        "claim": "team-a/claim-1",
        "gpus": 2,
        "path": "<class 'object'>",
    }


def test_log_leaves_out_what_is_below_the_level(stderr: Callable[[], str]) -> None:
    log.configure(LogLevel.WARNING, LogFormat.JSON)
    log.get("dra_driver.example").info("Nothing to see")
    assert stderr() == ""
    log.configure(LogLevel.DEBUG, LogFormat.JSON)
    log.get("dra_driver.example").debug("Now it is")
    assert "Now it is" in stderr()


def test_log_keeps_a_traceback_in_its_line(stderr: Callable[[], str]) -> None:
    log.configure(LogLevel.INFO, LogFormat.JSON)
    try:
        raise ValueError("broken")
    except ValueError:
        log.get("dra_driver.example").exception("It failed")
    lines = stderr().splitlines()
    assert len(lines) == 1
    assert "ValueError: broken" in json.loads(lines[0])["exception"]


def test_log_shows_no_local_variables_to_people(stderr: Callable[[], str]) -> None:
    log.configure(LogLevel.INFO, LogFormat.CONSOLE)
    secret = "not for the " + "log"
    try:
        raise ValueError("broken")
    except ValueError:
        log.get("dra_driver.example").exception("It failed")
    written = stderr()
    assert "ValueError: broken" in written
    assert secret not in written


def test_log_passes_on_warnings_of_libraries(stderr: Callable[[], str]) -> None:
    log.configure(LogLevel.ERROR, LogFormat.JSON)
    logging.getLogger("some.library").warning("lost %s", "it")
    logging.getLogger("some.library").info("chatter")
    assert [json.loads(line)["event"] for line in stderr().splitlines()] == ["lost it"]


def test_log_loses_what_a_library_cannot_say(stderr: Callable[[], str]) -> None:
    log.configure(LogLevel.INFO, LogFormat.JSON)
    logging.getLogger("some.library").warning("%d is no number", "this")
    assert stderr() == ""


@pytest.mark.usefixtures("stderr")
def test_log_writes_each_line_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Stream())
    log.configure(LogLevel.INFO, LogFormat.JSON)
    log.get("dra_driver.example").info("Ours")
    logging.getLogger("some.library").warning("Theirs")
    assert [json.loads(text)["event"] for text in written] == ["Ours", "Theirs"]
    assert all(text.endswith("}\n") for text in written)


def test_log_binds_context_to_all_lines(stderr: Callable[[], str]) -> None:
    log.configure(LogLevel.INFO, LogFormat.JSON)
    with log.context(claim="team-a/claim-1"):
        log.get("dra_driver.example").info("Something happened")
    assert json.loads(stderr())["claim"] == "team-a/claim-1"


@pytest.mark.usefixtures("stderr")
def test_log_goes_on_when_its_lines_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1, encoding="utf-8") as full:
        monkeypatch.setattr("sys.stderr", full)
        log.configure(LogLevel.INFO, LogFormat.JSON)
        log.get("dra_driver.example").info("Nobody reads this")
        with pytest.raises(OSError, match="No space left"):
            full.close()
