"""What the figures were taken on: they mean little elsewhere, their ratios more."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import psutil

from dra_driver import __version__
from tests.kube.build import KUBERNETES_VERSION


def machine(folder: Path) -> dict[str, Any]:
    """Facts that fit any report: no names of machines, paths or people."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memoryGib": round(psutil.virtual_memory().total / 2**30),
        "fileSystem": _file_system(folder),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "kubernetes": KUBERNETES_VERSION,
        "gpuslice": __version__,
        "commit": _commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def load_average() -> float:
    """Of the last minute."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    mounts = [
        each
        for each in psutil.disk_partitions(all=True)
        if folder.resolve().is_relative_to(each.mountpoint)
    ]
    return max(mounts, key=lambda each: len(each.mountpoint)).fstype if mounts else "unknown"


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip()
