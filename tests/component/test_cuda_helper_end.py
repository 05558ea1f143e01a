"""The helper in which libcuda is called ends with whoever started it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.arch.sources import ROOT
from tests.fakes.cuda_processes import CudaSimulation
from tests.waiting import eventually

_CALLER = """
import sys
from pathlib import Path
from dra_driver.adapters.cuda_calls import call_driver
from dra_driver.adapters.driver_programs import DriverPrograms
programs = DriverPrograms(driver_root=Path(sys.argv[1]), run_dir=Path(sys.argv[2]))
call_driver(programs, "checkpoint", (sys.argv[3],), timeout_s=600.0)
"""


def test_helper_ends_when_the_plugin_is_killed_in_the_middle_of_a_call(tmp_path: Path) -> None:
    # Else it would take a process off its GPU after the next plugin brought it back.
    simulation = CudaSimulation(tmp_path)
    simulation.fault("checkpoint", "hang")
    with simulation.process("one") as process:
        words = (str(simulation.driver_root), str(tmp_path / "run"), str(process.pid))
        with subprocess.Popen([sys.executable, "-c", _CALLER, *words], cwd=ROOT) as caller:
            eventually(lambda: _callers(simulation), 60, "the helper is in its call")
            (helper,) = _callers(simulation)
            caller.send_signal(signal.SIGKILL)
        eventually(lambda: not _runs(helper), 60, "the helper has ended")


def _callers(simulation: CudaSimulation) -> list[int]:
    return [each.caller for each in simulation.calls() if each.action == "checkpoint"]


def _runs(pid: int) -> bool:
    """Whether it is there; a zombie is not, whoever is to wait for it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
