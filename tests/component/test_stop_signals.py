"""Signals that come at the worst moment."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_IN_A_LOCK = """
import os, signal, sys
from dra_driver.app.signals import StopSignals

signals = StopSignals()
signals.install()
with signals.stop._cond:  # where the main thread is whenever it begins to wait
    os.kill(os.getpid(), int(sys.argv[1]))
    for _ in range(1000):
        pass
signals.stop.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_is_heard_when_the_main_thread_holds_a_lock(number: signal.Signals) -> None:
    command = [sys.executable, "-c", _IN_A_LOCK, str(number.value)]
    done = subprocess.run(command, timeout=60, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_third_signal_ends_the_process_at_once() -> None:
    text = _IN_A_LOCK.replace("    for _", "    os.kill(os.getpid(), 1)\n    for _").replace(
        "signals.stop.wait()", "signals.hurry.wait()\nos.kill(os.getpid(), 1)\nwhile True: pass"
    )
    done = subprocess.run([sys.executable, "-c", text, "15"], timeout=60, check=False)
    assert done.returncode == 128 + 1
