"""What the processes of one cluster live in: cgroups, a view of the files, and addresses.

Kubernetes writes to fixed places (``/run/containerd``, ``/var/lib/kubelet/device-plugins``,
``/var/log/containers``, some of ``/proc/sys``). In a mount namespace of its own a cluster has these
for itself: nothing of it reaches the machine's files, several clusters run side by side, manifests
keep the usual paths, and all mounts end with the last process. For the same reason each has an own
range of addresses, on which everybody listens at the usual ports.
"""

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.kube.cgroups import Cgroups
from tests.kube.daemons import Daemons
from tests.kube.process import NotReadyError, wait_until

BOUND = {"run": "/run", "kubelet": "/var/lib/kubelet", "containerd": "/var/lib/containerd"}
"""Folder of the cell → where its processes see it. Sockets there work from outside, too."""

COPIED_ON_WRITE = ("/etc", "/opt", "/var/lib", "/var/log")
"""Folders of the machine that the cell's processes see, and change for themselves only."""

# As the kubelet wants them; the first would make a machine reboot that now survives.
_KERNEL_SETTINGS = {
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """A cluster's own part of a range that is reserved for tests (RFC 2544), by number."""

    number: int

    @property
    def node(self) -> str:
        """The node's address, which is also the gateway of its pods."""
        return f"198.18.{self.number}.1"

    @property
    def pods(self) -> str:
        return f"198.18.{self.number}.0/24"

    @property
    def api_server(self) -> str:
        """The address of the Service ``kubernetes``, where the API server itself listens."""
        return f"198.19.{self.number}.1"

    @property
    def services(self) -> str:
        return f"198.19.{self.number}.0/24"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The surroundings of one cluster; its folder alone leads to all of them again."""

    folder: Path

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:8]

    @property
    def bridge(self) -> str:
        return f"gpuslice{self.id[:7]}"

    @property
    def cgroups(self) -> Cgroups:
        return Cgroups(name=f"gpuslice-{self.id}")

    @property
    def daemons(self) -> Daemons:
        return Daemons(
            records=self.folder / "processes",
            logs=self.folder / "logs",
            cgroup_procs=self.cgroups.daemons_procs,
        )

    @property
    def programs(self) -> Path:
        """Programs that the node has besides the machine's, or instead of them."""
        return self.folder / "programs"

    def search_path(self, folder: Path) -> str:
        """Give PATH for a process of the node that needs a folder of built programs."""
        machine = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return f"{self.programs}:{folder}:{machine}"

    def create(self) -> Addresses:
        """Create everything but the folder, which has to exist.

        Raises:
            NotReadyError: there is no free range of addresses, or mounting fails.
        """
        for name in ("processes", "logs", "programs", *BOUND, *_layers()):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.cgroups.create()
        self._create_mount_namespace()
        return self._create_bridge()

    def inside(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Give the command line that runs another one with the cell's view of the files."""
        keeper = self.daemons.pid("mounts")
        assert keeper is not None, f"the cluster in {self.folder} does not run"
        return ("nsenter", f"--mount=/proc/{keeper}/ns/mnt", "--wd=/", *argv)

    def place_of(self, path: str) -> Path:
        """Give the place, seen from outside, of a file that a process inside wrote.

        Only files below the folders of BOUND and COPIED_ON_WRITE have one.
        """
        path = path.replace("/var/run/", "/run/", 1)
        for name, place in BOUND.items():
            if Path(path).is_relative_to(place):
                return self.folder / name / Path(path).relative_to(place)
        for layer, place in zip(_layers(), COPIED_ON_WRITE, strict=True):
            if Path(path).is_relative_to(place):
                return self.folder / layer / Path(path).relative_to(place)
        raise ValueError(f"{path} is the machine's own")

    def destroy(self) -> None:
        """End all processes and remove everything, the folder too. Repeatable.

        Needs no record of what was created, so that it also tidies up after a half-done start.

        Raises:
            NotReadyError: what does not go.
        """
        self.cgroups.destroy()
        wait_until(self._remove_interfaces, waiting_for=f"the removal of {self.bridge}")
        self._remove_folder()

    def _create_mount_namespace(self) -> None:
        script = self.folder / "mounts.sh"
        script.write_text("\n".join(self._mount_commands()) + "\n")
        self.daemons.start(
            "mounts", ("unshare", "--mount", "--propagation", "slave", "sh", "-e", str(script))
        )

        def problem() -> str:
            if self.daemons.pid("mounts") is None:
                raise NotReadyError(f"mounting failed. {self.daemons.log_tail('mounts')}")
            return "" if (self.folder / "mounted").exists() else "not yet"

        wait_until(problem, waiting_for="the cluster's mounts")

    def _mount_commands(self) -> Iterator[str]:
        # A pod's volume with mountPropagation: Bidirectional has to lie on a shared mount.
        yield "mount --make-rshared /"
        folder = self.folder.resolve()
        for layer, place in zip(_layers(), COPIED_ON_WRITE, strict=True):
            upper, work = folder / layer, folder / f"{layer}.work"
            work.mkdir(exist_ok=True)
            options = f"lowerdir={place},upperdir={upper},workdir={work}"
            yield shlex.join(["mount", "-t", "overlay", "overlay", "-o", options, place])
        for name, place in BOUND.items():
            yield shlex.join(["mkdir", "-p", place])
            yield shlex.join(["mount", "--bind", str(folder / name), place])
        for name, value in _KERNEL_SETTINGS.items():
            setting = folder / "sysctl" / name
            setting.parent.mkdir(parents=True, exist_ok=True)
            setting.write_text(f"{value}\n")
            yield shlex.join(["mount", "--bind", str(setting), f"/proc/sys/{name}"])
        yield shlex.join(["touch", str(folder / "mounted")])
        yield "exec sleep infinity"

    def _create_bridge(self) -> Addresses:
        with _machine_lock():
            used = _run("ip", "-o", "-4", "address").stdout
            for number in range(256):
                addresses = Addresses(number=number)
                if f" {addresses.node}/" not in used:
                    break
            else:
                raise NotReadyError("256 clusters run already: end one by 'hack/cluster down'")
            _run("ip", "link", "add", self.bridge, "type", "bridge")
            for address in (f"{addresses.node}/24", f"{addresses.api_server}/32"):
                _run("ip", "address", "add", address, "dev", self.bridge)
            _run("ip", "link", "set", self.bridge, "up")
        return addresses

    def _remove_interfaces(self) -> str:
        """Remove the pods' ends too: the kernel does that itself, but only some time later."""
        bridge = Path("/sys/class/net", self.bridge)
        ports = (bridge / "brif").iterdir() if bridge.exists() else ()
        for name in (*(port.name for port in ports), self.bridge):
            subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
        return f"{bridge} is still there" if bridge.exists() else ""

    def _remove_folder(self) -> None:
        inside = f"{self.folder.resolve()}/"
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        if left := [point for point in mounts if point.startswith(inside)]:
            raise NotReadyError(f"{', '.join(left)} is still mounted: unmount it and try again")
        if self.folder.exists():
            shutil.rmtree(self.folder)


def check_folder(folder: Path) -> str:
    """Say what is wrong with a folder for a cluster; nothing is wrong if the answer is empty."""
    hidden = (*BOUND.values(), *COPIED_ON_WRITE)
    place = folder.resolve()
    for other in hidden:
        if place.is_relative_to(other):
            return f"{place} lies in {other}, of which a cluster has its own: choose another folder"
    if "," in str(place) or ":" in str(place):
        return f"{place} has a comma or colon in its name, which mount cannot take: choose another"
    return ""


def _layers() -> tuple[str, ...]:
    return tuple(f"changes{place}" for place in COPIED_ON_WRITE)


def _run(*argv: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotReadyError(f"'{shlex.join(argv)}' failed: {done.stderr.strip()}")
    return done


@contextlib.contextmanager
def _machine_lock() -> Iterator[None]:
    """Keep other clusters of the machine, in whatever folder, from choosing the same addresses."""
    descriptor = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
