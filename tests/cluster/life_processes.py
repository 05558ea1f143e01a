"""Processes of containers, as the machine sees them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.kube.cluster import Cluster


def processes(cluster: Cluster, container: str) -> tuple[int, ...]:
    """Give the ids of a container's processes."""
    name = container.removeprefix("containerd://")
    found = []
    for pid in cluster.cell.cgroups.pids():
        with suppress(FileNotFoundError, ProcessLookupError):
            if name in Path(f"/proc/{pid}/cgroup").read_text():
                found.append(pid)
    return tuple(found)


def first_process(cluster: Cluster, container: str) -> int:
    """Give the process that is number 1 in a container."""
    for pid in processes(cluster, container):
        with suppress(FileNotFoundError, ProcessLookupError):
            if "\t1\n" in _status_line(pid, "NSpid"):
                return pid
    raise AssertionError(f"{container} does not run")


def kill(cluster: Cluster, container: str) -> None:
    """Kill a container's processes as a crash does."""
    for pid in processes(cluster, container):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _status_line(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines(keepends=True)
    return next(line for line in lines if line.startswith(f"{name}:"))
