"""The command `gpuslice doctor`: what is fine on a node, what is not, and how to mend it.

Nothing is changed: folders are not made, and the API server is asked by dry runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

from dra_driver.adapters.clock import SystemClock
from dra_driver.app.doctor_api import api_server
from dra_driver.app.doctor_folders import (
    cdi_folder,
    kubelet_folders,
    plugin_sockets,
    pod_resources,
    run_folder,
    state_folder,
)
from dra_driver.app.doctor_gpus import GpuChecks
from dra_driver.app.doctor_hook import (
    criu_config,
    criu_program,
    cuda_tools,
    hook_program,
    hook_sockets,
)
from dra_driver.app.doctor_host import (
    cgroups,
    container_runtime,
    default_pipe,
    mps_program,
    nvidia_smi,
    rights,
)
from dra_driver.app.doctor_ports import open_ports
from dra_driver.errors import GpusliceError
from dra_driver.model.doctor import Finding, Verdict, problem, warning
from dra_driver.settings import Settings

CHECK_TIMEOUT_S = 3.0
_PROBE_S = 1.0

Check = Callable[[], Iterable[Finding] | Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport:
    """Findings in the order of looking: what others rest on comes first."""

    findings: tuple[Finding, ...]

    @property
    def sound(self) -> bool:
        """There is no problem; warnings do not count."""
        return all(each.verdict is not Verdict.PROBLEM for each in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"sound": self.sound, "findings": [each.to_json() for each in self.findings]}


def doctor_report(settings: Settings) -> DoctorReport:
    """Look at this node once.

    Raises:
        SettingsError: the file of `--simulate` is malformed or missing.
    """
    with open_ports(settings) as ports:
        gpus = GpuChecks(ports)
        checks: tuple[tuple[str, Check], ...] = (
            ("rights", rights),
            ("driver", gpus.gpus),
            ("persistence mode", gpus.persistence),
            ("nvidia-smi", partial(nvidia_smi, settings)),
            ("MPS program", partial(mps_program, settings)),
            ("mpsd", gpus.sharing),
            ("compute modes", gpus.modes),
            ("other MPS", gpus.foreign),
            ("default MPS folder", partial(default_pipe, settings)),
            ("cgroups", partial(cgroups, settings)),
            ("container runtime", partial(container_runtime, settings)),
            ("CDI folder", partial(cdi_folder, settings)),
            ("state folder", partial(state_folder, settings)),
            ("run folder", partial(run_folder, settings)),
            ("kubelet folders", partial(kubelet_folders, settings)),
            ("plugin", partial(plugin_sockets, settings, timeout_s=_PROBE_S)),
            ("pod resources", partial(pod_resources, settings)),
            ("checkpoint hook", partial(hook_program, settings)),
            ("CRIU configuration", partial(criu_config, settings)),
            ("CRIU", partial(criu_program, settings)),
            ("CUDA checkpoints", partial(cuda_tools, settings)),
            ("hook sockets", partial(hook_sockets, settings)),
            ("api server", api_server(settings, SystemClock())),
        )
        return run_checks(checks, timeout_s=CHECK_TIMEOUT_S)


def run_checks(checks: Iterable[tuple[str, Check]], *, timeout_s: float) -> DoctorReport:
    """Make each check in turn; one that fails or takes longer than `timeout_s` is a finding."""
    findings = [each for subject, check in checks for each in _made(subject, check, timeout_s)]
    return DoctorReport(findings=tuple(findings))


def _made(subject: str, check: Check, timeout_s: float) -> list[Finding]:
    found: list[Finding] = []
    ended: list[bool] = []

    def look() -> None:
        try:
            result = check()
            found.extend((result,) if isinstance(result, Finding) else result)
        except PermissionError as error:
            found.append(_not_seen(subject, error))
        except (GpusliceError, OSError) as error:
            found.append(problem(subject, str(error)))
        ended.append(True)

    # A check that hangs in a system call must not keep the process: its thread is left behind.
    thread = Thread(target=look, name=f"doctor-{subject}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if ended:
        return found
    if thread.is_alive():
        mend = "find out what blocks it, such as a hung mount or driver"
        return [*found, problem(subject, f"no answer within {timeout_s:g} s", mend)]
    return [*found, problem(subject, "the check failed in a way that nobody foresaw", "report it")]


def _not_seen(subject: str, error: PermissionError) -> Finding:
    if os.geteuid() == 0:
        return problem(subject, str(error))
    return warning(subject, str(error), "run the doctor as root")
