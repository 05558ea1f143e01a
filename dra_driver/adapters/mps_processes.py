"""Processes of this host, as /proc shows them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dra_driver.model.mps import DaemonProcess

CONTROL = "nvidia-cuda-mps-control"
SERVER = "nvidia-cuda-mps-server"
_NAME_IN_KERNEL = CONTROL[:15]
_STATE, _STARTED = 0, 19
"""Fields 3 and 22 of /proc/<pid>/stat, counted after the command's closing bracket."""

_ENDED = ("Z", "X")


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsProcess:
    """A control daemon or a server.

    Attributes:
        program: CONTROL or SERVER.
        environment: None where this process may not read it.
    """

    process: DaemonProcess
    program: str
    environment: Mapping[str, str] | None


class Processes:
    """Reads /proc.

    Args:
        proc: the host's; its process ids must be those that this process uses.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)

    def started(self, pid: int) -> int | None:
        """Start time in clock ticks after boot; None: it has ended."""
        content = self._read(pid, "stat")
        fields = content.rpartition(b")")[2].split()
        if len(fields) <= _STARTED or fields[_STATE].decode() in _ENDED:
            return None
        return int(fields[_STARTED])

    def runs(self, process: DaemonProcess) -> bool:
        return self.started(process.pid) == process.started

    def mps(self) -> Iterator[MpsProcess]:
        """Control daemons and servers, by age; not the helpers that speak to a daemon."""
        names = (path.name for path in Path(self._proc).iterdir())
        found = (self._mps_process(int(name)) for name in names if name.isdecimal())
        known = [each for each in found if each is not None]
        yield from sorted(known, key=lambda each: (each.process.started, each.process.pid))

    def _mps_process(self, pid: int) -> MpsProcess | None:
        # Both names are cut to the same in the kernel; most processes end here, at one read.
        if self._read(pid, "comm").decode(errors="replace").strip() != _NAME_IN_KERNEL:
            return None
        words = self._read(pid, "cmdline").rstrip(b"\0").split(b"\0")
        program = os.path.basename(words[0]).decode(errors="replace")  # noqa: PTH119
        started = self.started(pid)
        # Without an option the control program only passes commands on.
        daemon = program == SERVER or (program == CONTROL and len(words) > 1)
        if not daemon or started is None:
            return None
        return MpsProcess(
            process=DaemonProcess(pid=pid, started=started),
            program=program,
            environment=self._environment(pid),
        )

    def _environment(self, pid: int) -> Mapping[str, str] | None:
        try:
            content = Path(self._proc, str(pid), "environ").read_bytes()
        except OSError:
            return None
        pairs = (entry.partition("=") for entry in content.decode(errors="replace").split("\0"))
        return {name: value for name, _, value in pairs if name}

    def _read(self, pid: int, name: str) -> bytes:
        with suppress(OSError):
            return Path(self._proc, str(pid), name).read_bytes()
        return b""
