"""Processes that outlive the one that starts them, and are found again by any other."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.kube.process import NotReadyError, wait_until

# The process records itself before it becomes the program: who is killed while starting it leaves
# no process that nobody knows of. Arguments: file of the cgroup, record, program.
_START = """
read -r stat </proc/$$/stat
echo $$ >"$0" && echo "$stat" >"$1.new" && mv "$1.new" "$1" && shift && exec "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemons:
    """Named processes, each with a record in ``records`` and a log in ``logs``.

    A record is the process's line in /proc: its id and its start time, so that another process
    that got the same id later is never taken for it.
    """

    records: Path
    logs: Path
    cgroup_procs: Path

    def start(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a process in the cgroup; returns before it is ready."""
        assert self.pid(name) is None, f"{name} runs already"
        record = self.records / name
        record.unlink(missing_ok=True)
        with self.log(name).open("ab") as output:
            subprocess.run(
                [
                    *("setsid", "--fork", "sh", "-c"),
                    *(_START, str(self.cgroup_procs), str(record), *argv),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                check=True,
            )
        wait_until(
            lambda: "" if record.exists() else f"no file {record}",
            waiting_for=f"the start of {name}",
        )

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def names(self) -> tuple[str, ...]:
        """Give the names of all that were started, sorted; some may have ended."""
        return tuple(sorted(path.name for path in self.records.iterdir() if not path.suffix))

    def pid(self, name: str) -> int | None:
        """Give the id of a running process."""
        try:
            recorded = ProcessId.parse((self.records / name).read_text())
        except FileNotFoundError:
            return None
        return recorded.pid if recorded.alive else None

    def stop(self, name: str, *, grace_s: float = 15.0) -> None:
        """Ask a process to end and wait for it; it is killed after ``grace_s``. Repeatable."""
        self._signal(name, signal.SIGTERM)
        try:
            self._wait_for_end(name, timeout_s=grace_s)
        except NotReadyError:
            self.kill(name)

    def kill(self, name: str) -> None:
        """End a process at once, as a crash does, and wait for it. Repeatable."""
        self._signal(name, signal.SIGKILL)
        self._wait_for_end(name, timeout_s=15.0)

    def _signal(self, name: str, number: signal.Signals) -> None:
        pid = self.pid(name)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wait_for_end(self, name: str, *, timeout_s: float) -> None:
        wait_until(
            lambda: f"process {pid} is there" if (pid := self.pid(name)) else "",
            waiting_for=f"the end of {name}",
            timeout_s=timeout_s,
        )

    def log_tail(self, name: str) -> str:
        """Give the end of a process's log, under a line that names the file."""
        lines = self.log(name).read_text(errors="replace").splitlines()[-30:]
        return f"End of {self.log(name)}:\n" + "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """A process that is told apart from all others of the same boot, by its start time."""

    pid: int
    start_time: int

    @classmethod
    def parse(cls, stat: str) -> "ProcessId":
        """Read a line of /proc/PID/stat."""
        return cls(pid=int(stat.split(" ", 1)[0]), start_time=int(_after_command(stat)[19]))

    @classmethod
    def mine(cls) -> "ProcessId":
        return cls.parse(Path("/proc/self/stat").read_text())

    @property
    def alive(self) -> bool:
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return self.parse(stat) == self and _after_command(stat)[0] != "Z"


def _after_command(stat: str) -> list[str]:
    """Give the fields from the third on; the second, in parentheses, may hold anything."""
    return stat.rpartition(")")[2].split()
