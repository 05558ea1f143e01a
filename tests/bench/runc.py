"""Containers of the real runc, which CRIU dumps."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from dra_driver.plan.claim_marks import MARKER_PATH
from tests.kube.cgroups import Cgroups
from tests.kube.tools import run
from tests.waiting import eventually

LARGE_MIB = 256
"""Memory of the larger container; some hundreds of MiB are the least of a process that uses CUDA."""

_FREEZING = re.compile(r"\(([0-9.]+)\) freezer\.state=FREEZING\n\(([0-9.]+)\)")
POD_UID = "22222222-3333-4444-8555-{:012x}"
_SMALL = "busybox sleep 1000000 & busybox sleep 1000000 & wait"
_LARGE = f"busybox dd if=/dev/zero bs={LARGE_MIB}M count=1 | busybox sleep 1000000"
"""It has read all when it waits for room in the pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One of a shell with two children; `config` is what runc lets CRIU read for it."""

    id: str
    pid: int
    config: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """How long one took, and what CRIU waited of that for the kernel to freeze the container.

    It looks once in 100 ms, so that is all or next to nothing, by chance.
    """

    milliseconds: float
    freezing_ms: float


def freezing_ms(log: str) -> float:
    """Of CRIU's log with times; 0 where the container was frozen at once."""
    return 1e3 * sum(float(after) - float(before) for before, after in _FREEZING.findall(log))


@dataclass(frozen=True, slots=True, kw_only=True)
class Runc:
    """runc with a folder, a cgroup and a network namespace of the benchmark's own.

    Attributes:
        folder: of everything it has; on the disk that is measured.
        network: of all its containers, as a pod's is made before them.
    """

    folder: Path
    cgroups: Cgroups
    network: Path

    def install(self) -> None:
        """Make the image of all containers."""
        programs = self.folder / "rootfs/bin"
        programs.mkdir(parents=True)
        busybox = run(("sh", "-c", "command -v busybox")).strip()
        (programs / "busybox").write_bytes(Path(busybox).read_bytes())
        (programs / "busybox").chmod(0o755)

    def start(self, number: int, *, mark: Path | None, large: bool = False) -> Container:
        """Run a container; with a claim, `mark` is the file that its CDI spec mounts."""
        name = f"{number:064x}"
        bundle = self.folder / f"bundle-{number}"
        bundle.mkdir()
        config = bundle / "criu.conf"
        config.write_text("")
        spec = self._spec(number, name, config=config, mark=mark)
        spec["process"]["args"][-1] = _LARGE if large else _SMALL
        (bundle / "config.json").write_text(json.dumps(spec))
        pid = bundle / "pid"
        # CRIU can dump no descriptor of a file outside: the container's own are on its /dev/null.
        subprocess.run(
            [*self._runc, "run", "--detach", "--bundle", bundle, "--pid-file", pid, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        found = Container(id=name, pid=int(pid.read_text()), config=config)
        eventually(lambda: _is_up(found, large=large), 60, "the container has started")
        return found

    def dump(self, container: Container, told: str) -> Dump:
        """Checkpoint it as containerd does, and leave it running; CRIU is told so much."""
        container.config.write_text(f"{told}verbosity 4\n")
        images, work = self.folder / "images", self.folder / "work"
        places = ("--image-path", str(images), "--work-path", str(work))
        command = (*self._runc, "checkpoint", "--leave-running", *places, container.id)
        started = perf_counter()
        run(command)
        ended = perf_counter()
        run(("rm", "-r", str(images)))
        log = (work / "dump.log").read_text(errors="replace")
        return Dump(milliseconds=1e3 * (ended - started), freezing_ms=freezing_ms(log))

    def delete(self, container: Container) -> None:
        run((*self._runc, "delete", "--force", container.id))

    def _spec(self, number: int, name: str, *, config: Path, mark: Path | None) -> dict[str, Any]:
        namespaces = [{"type": each} for each in ("pid", "ipc", "uts", "mount")]
        return {
            "ociVersion": "1.0.2",
            "root": {"path": str(self.folder / "rootfs")},
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/bin/busybox", "sh", "-c", ""],
                "env": ["PATH=/bin"],
                "cwd": "/",
            },
            "mounts": _mounts(mark),
            "annotations": {"org.criu.config": str(config)},
            "linux": {
                "cgroupsPath": f"{self.cgroups.pods}/pod{POD_UID.format(number)}/{name}",
                "namespaces": [*namespaces, {"type": "network", "path": str(self.network)}],
            },
        }

    @property
    def _runc(self) -> tuple[str, ...]:
        return ("runc", "--root", str(self.folder / "runc"))


def _mounts(mark: Path | None) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
    ]
    if mark is not None:
        options = ["ro", "nosuid", "nodev", "bind"]
        mounts.append({"destination": MARKER_PATH, "source": str(mark), "options": options})
    return mounts


def _is_up(container: Container, *, large: bool) -> bool:
    """Whether its processes are there, and have the memory that they are to have."""
    pids = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
    pages = [int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in pids]
    enough = not large or max(pages, default=0) * os.sysconf("SC_PAGE_SIZE") >= LARGE_MIB << 20
    return len(pids) == len(_SMALL.split("&")) - 1 and enough
