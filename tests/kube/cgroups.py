"""The cgroups of a cluster: what belongs to it is found and ended through them, not by names."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kube.process import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Cgroups:
    """One folder called ``name`` at the top of each cgroup hierarchy of the machine.

    Below it, ``daemons`` holds the cluster's own processes and ``pods`` those of its pods. A
    process stays a member however it forks, so that all of them are found without any record.
    """

    name: str

    @property
    def pods(self) -> str:
        """The kubelet's cgroupRoot."""
        return f"/{self.name}/pods"

    @property
    def daemons_procs(self) -> Path:
        """The file that a process writes its id to in order to join."""
        return _owning_hierarchy() / self.name / "daemons" / "cgroup.procs"

    def create(self) -> None:
        (_owning_hierarchy() / self.name / "daemons").mkdir(parents=True, exist_ok=True)
        for hierarchy in _hierarchies():
            (hierarchy / self.name / "pods").mkdir(parents=True, exist_ok=True)
            for above in (hierarchy, hierarchy / self.name):
                _hand_down_controllers(above)

    def pids(self) -> tuple[int, ...]:
        """Give the ids of all living processes of the daemons and of the pods."""
        return tuple(sorted(set(_pids(_owning_hierarchy() / self.name))))

    def folders(self) -> tuple[Path, ...]:
        """Give the cgroups that exist, the deepest first."""
        return tuple(
            folder
            for hierarchy in _hierarchies()
            for folder in sorted(_tree(hierarchy / self.name), reverse=True)
        )

    def destroy(self) -> None:
        """End all processes at once and remove the cgroups. Repeatable.

        Raises:
            NotReadyError: a process does not end, or a cgroup cannot be removed.
        """
        wait_until(self._kill, waiting_for=f"the end of the processes of cgroup {self.name}")
        wait_until(self._remove, waiting_for=f"the removal of cgroup {self.name}")

    def _kill(self) -> str:
        pids = self.pids()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return f"processes {pids} are still there" if pids else ""

    def _remove(self) -> str:
        left = ""
        for folder in self.folders():
            try:
                folder.rmdir()
            except FileNotFoundError:
                pass
            except OSError as error:
                left = str(error)
        return left


def _pids(cgroup: Path) -> Iterator[int]:
    for folder in _tree(cgroup):
        # A pod may go while this is read.
        with contextlib.suppress(FileNotFoundError, OSError):
            yield from map(int, (folder / "cgroup.procs").read_text().split())


def _tree(cgroup: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(cgroup):
        yield Path(folder)


def _hierarchies() -> tuple[Path, ...]:
    """Give the mount points of all cgroup hierarchies: one on version 2, several on version 1."""
    return tuple(
        sorted({point for point, kind, _ in _cgroup_mounts() if kind.startswith("cgroup")})
    )


def _owning_hierarchy() -> Path:
    """Give the hierarchy of which daemons are members: every container is one of it too."""
    mounts = tuple(_cgroup_mounts())
    for point, kind, options in mounts:
        if kind == "cgroup" and "pids" in options:
            return point
    return next(point for point, kind, _ in mounts if kind == "cgroup2")


def _cgroup_mounts() -> Iterator[tuple[Path, str, frozenset[str]]]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in {"cgroup", "cgroup2"}:
            yield Path(left.split()[4]), kind, frozenset(options.split(","))


def _hand_down_controllers(cgroup: Path) -> None:
    """Let the cgroups below use all controllers, which version 2 asks for."""
    with contextlib.suppress(FileNotFoundError):
        for controller in (cgroup / "cgroup.controllers").read_text().split():
            # The root of a container has processes of its own and refuses.
            with contextlib.suppress(OSError):
                (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")
