"""Containers by their cgroups, of version 1, 2 or both.

Sources: kernel documentation of cgroup v2 ("cgroup.freeze", "cgroup.events", "memory.max") and of
v1's freezer and memory controllers.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dra_driver.adapters.cgroup_files import groups_of, members, read_text
from dra_driver.adapters.cgroup_names import pod_and_container
from dra_driver.adapters.process_stat import start_time
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import ContainerMemory
from dra_driver.model.cuda import ProcessRef

_UNLIMITED_BYTES = 1 << 60


class ContainerCgroups:
    """`Containers` of this host.

    Args:
        host_root: where the host's /sys is seen.
        proc: the host's /proc, of this process's pids.
    """

    def __init__(self, host_root: Path, *, proc: Path | None = None) -> None:
        self._cgroups = host_root / "sys/fs/cgroup"
        self._proc = proc or host_root / "proc"

    def find(self, container_id: str) -> ProcessRef | None:
        found = (
            self._ref(pid)
            for pid in self._pids()
            if (text := self._text(f"{pid}/cgroup")) and container_id in text
            if pod_and_container(text)[1] == container_id
        )
        return min((each for each in found if each), key=_age, default=None)

    def processes(self, init: ProcessRef) -> tuple[ProcessRef, ...]:
        if self._ref(init.pid) != init:
            return ()
        group = next(self._groups(init, ""), None)
        if group is None:
            raise AdapterError(
                f"cannot find the cgroup of process {init.pid} below {self._cgroups}: check"
                " --host-root"
            )
        found = (self._ref(pid) for pid in sorted(members(group)))
        others = sorted({each for each in found if each} - {init}, key=_age)
        return (init, *others)

    def frozen(self, init: ProcessRef) -> bool:
        if self._ref(init.pid) != init:
            return False
        for group in self._groups(init, "freezer"):
            # What is frozen above freezes all below.
            for each in (group, group.parent):
                if _frozen(str(each)):
                    return True
        return False

    def memory(self, init: ProcessRef) -> ContainerMemory:
        left = [
            limit - used
            for group in self._groups(init, "memory")
            for each in (group, group.parent)
            for limit, used in _memory(each)
        ]
        return ContainerMemory(
            available_bytes=self._available(), left_bytes=max(0, min(left)) if left else None
        )

    def kill(self, processes: tuple[ProcessRef, ...]) -> None:
        for each in processes:
            with suppress(ProcessLookupError):
                try:
                    self._kill(each)
                except PermissionError as error:
                    raise AdapterError(
                        f"cannot kill process {each.pid}: {error.strerror}; run as root of the host"
                    ) from error

    def _kill(self, process: ProcessRef) -> None:
        descriptor = os.pidfd_open(process.pid)
        try:
            # What is held open is that process for ever, whoever gets its pid.
            if self._ref(process.pid) == process:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)

    def _groups(self, init: ProcessRef, controller: str) -> Iterator[Path]:
        """Groups of a process of version 2, and of version 1 with this controller."""
        text = self._text(f"{init.pid}/cgroup") or ""
        return groups_of(self._cgroups, pid=init.pid, text=text, controller=controller)

    def _available(self) -> int:
        for line in (self._text("meminfo") or "").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        raise AdapterError(f"{self._proc}/meminfo does not tell MemAvailable: check --host-root")

    def _pids(self) -> Iterator[int]:
        try:
            names = os.listdir(self._proc)  # noqa: PTH208 - of hundreds of processes
        except OSError as error:
            raise AdapterError(f"cannot list {self._proc}: {error.strerror}") from error
        return (int(name) for name in names if name.isdigit())

    def _ref(self, pid: int) -> ProcessRef | None:
        started = start_time(self._proc, pid)
        return None if started is None else ProcessRef(pid=pid, started=started)

    def _text(self, name: str) -> str | None:
        return read_text(f"{self._proc}/{name}")


def _frozen(group: str) -> bool:
    state = read_text(f"{group}/freezer.state")
    if state is not None:
        return state in ("FROZEN", "FREEZING")
    if read_text(f"{group}/cgroup.freeze") == "1":
        return True
    return "frozen 1" in (read_text(f"{group}/cgroup.events") or "")


def _memory(group: Path) -> Iterator[tuple[int, int]]:
    """Limit and use, where there is a limit."""
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit = read_text(f"{group}/{limit_name}")
        used = read_text(f"{group}/{used_name}") if limit else None
        if limit and used and limit.isdigit() and int(limit) < _UNLIMITED_BYTES:
            yield int(limit), int(used)


def _age(process: ProcessRef) -> tuple[int, int]:
    return process.started, process.pid
