from __future__ import annotations

from threading import Event

import pytest

from dra_driver.errors import FatalError
from dra_driver.loops.guard import Loop, LoopGuard


def wait_for_stop(stop: Event) -> None:
    stop.wait()


def run_until_fatal(loop: Loop) -> str:
    fatal = Event()
    texts: list[str] = []

    def on_fatal(text: str) -> None:
        texts.append(text)
        fatal.set()

    guard = LoopGuard(on_fatal)
    guard.start("monitor", loop)
    assert fatal.wait(5), "the guard did not report the loop's end"
    assert guard.stop(5) == ()
    return texts[0]


def test_guard_reports_the_error_when_a_loop_fails() -> None:
    def fail(stop: Event) -> None:
        raise RuntimeError("no more GPUs")

    assert run_until_fatal(fail) == "loop monitor failed: RuntimeError('no more GPUs')"


def test_guard_says_the_sentence_alone_when_a_loop_cannot_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(stop: Event) -> None:
        raise FatalError("cannot use /run/gpuslice: mount it read-write")

    text = run_until_fatal(fail)

    assert text == "loop monitor failed: cannot use /run/gpuslice: mount it read-write"
    assert "Traceback" not in "".join(capsys.readouterr())


def test_guard_reports_a_loop_when_it_ends_unasked() -> None:
    assert run_until_fatal(lambda stop: None) == ("loop monitor ended although nobody asked it to")


@pytest.mark.parametrize("count", [1, 3])
def test_guard_reports_nothing_when_loops_are_stopped(count: int) -> None:
    texts: list[str] = []
    guard = LoopGuard(texts.append)
    for number in range(count):
        guard.start(f"loop-{number}", wait_for_stop)
    assert guard.ended() == ()
    assert guard.stop(5) == ()
    assert guard.ended() == tuple(f"loop-{number}" for number in range(count))
    assert texts == []
