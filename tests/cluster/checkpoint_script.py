"""A script that CRIU calls as an action script and runc as an OCI hook, and that writes this down.

It refuses or hangs on demand: so it shows what the runtime itself makes of each.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.kube.cluster import Cluster
from tests.kube.criu import write_program

_FOLDER = "/run/checkpoint-script"

# One call is one line, written at once; what it is given as a hook stands in it as it came.
_SCRIPT = f"""\
#!/bin/sh
action=${{CRTOOLS_SCRIPT_ACTION:-oci}}
pid=${{CRTOOLS_INIT_PID:-self}}
frozen() {{
  cgroup=$(sed -n 's/.*:freezer://p' "/proc/$pid/cgroup")
  if [ "$cgroup" ]; then
    ! grep -q THAWED "/sys/fs/cgroup/freezer$cgroup/freezer.state"
  else
    cgroup=$(sed -n 's/^0:://p' "/proc/$pid/cgroup")
    grep -q 'frozen 1' "/sys/fs/cgroup$cgroup/cgroup.events"
  fi
}}
state=null
[ $action != oci ] || state=$(cat)
if frozen; then frozen=true; else frozen=false; fi
echo "{{\\"action\\":\\"$action\\",\\"pid\\":\\"$pid\\",\\"frozen\\":$frozen,\\"state\\":$state}}" \\
  >>{_FOLDER}/calls
if [ -e {_FOLDER}/hang.$action ]; then read -r _ <{_FOLDER}/release; fi
[ ! -e {_FOLDER}/refuse.$action ]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call.

    Attributes:
        action: CRIU's name of it; ``oci`` for a hook of an OCI runtime.
        pid: of the container's first process; None where CRIU does not say.
        frozen: whether that process's cgroup was frozen, or else the script's own.
        status: of the container, as the OCI runtime gives it to its hooks; None from CRIU.
    """

    action: str
    pid: int | None
    frozen: bool
    status: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionScript:
    """The script on one cluster's node; `path` is that for CRIU's configuration."""

    path: Path
    folder: Path

    @classmethod
    def install(cls, cluster: Cluster) -> Self:
        script = cls(
            path=write_program(cluster, "checkpoint-script", _SCRIPT),
            folder=cluster.node_path(_FOLDER),
        )
        script.folder.mkdir()
        os.mkfifo(script.folder / "release")
        return script

    def calls(self) -> tuple[Call, ...]:
        """Give the calls since `forget`, in their order."""
        found = []
        for line in self._calls.read_text().splitlines() if self._calls.exists() else ():
            call = json.loads(line)
            found.append(
                Call(
                    action=call["action"],
                    pid=None if call["pid"] == "self" else int(call["pid"]),
                    frozen=call["frozen"],
                    status=(call["state"] or {}).get("status"),
                )
            )
        return tuple(found)

    def actions(self) -> tuple[str, ...]:
        return tuple(call.action for call in self.calls())

    def forget(self) -> None:
        self._calls.unlink(missing_ok=True)

    @contextmanager
    def refusing(self, action: str) -> Iterator[None]:
        """Fail in that action."""
        with self._marked(f"refuse.{action}"):
            yield

    @contextmanager
    def hanging(self, action: str) -> Iterator[None]:
        """Wait in that action; a call that waits goes on afterwards."""
        try:
            with self._marked(f"hang.{action}"):
                yield
        finally:
            # Nobody may be waiting.
            with suppress(OSError):
                os.close(os.open(self.folder / "release", os.O_WRONLY | os.O_NONBLOCK))

    @contextmanager
    def _marked(self, name: str) -> Iterator[None]:
        mark = self.folder / name
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()

    @property
    def _calls(self) -> Path:
        return self.folder / "calls"
