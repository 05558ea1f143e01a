"""What machine this is."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from tests.gpu import nvml
from tests.gpu.site import Site, try_client
from tests.gpu.steps.values import Step


def facts(site: Site) -> dict[str, Any]:
    return {
        "driver": site.driver,
        "gpu": site.gpu,
        "nvml": nvml.facts(site.gpu) if site.nvml else None,
        "control": site.control,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cgroup_v2": Path("/sys/fs/cgroup/cgroup.controllers").exists(),
        "cgroup_controllers": _text("/sys/fs/cgroup/cgroup.controllers").split(),
        "memory_kib": _text("/proc/meminfo").partition("\n")[0].split()[1:2],
        "cores": os.cpu_count(),
        "uid": os.geteuid(),
        "capabilities": [line for line in _text("/proc/self/status").splitlines() if "Cap" in line],
        "without_mps": try_client(site),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


FACT_STEPS = (
    Step(
        name="facts",
        budget_s=30,
        asks="T0: driver, GPU, programs, memory, and whether a plain client works",
        run=facts,
    ),
)
