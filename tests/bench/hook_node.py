"""A node whose real plugin answers for containers of the real runc, which CRIU dumps."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from dra_api.kubelet import podresources_v1_pb2 as messages
from dra_driver.plan.claim_marks import MARKER_PATH
from dra_driver.sim.kubelet_values import KubeletClaim
from tests.component.hooked_node import PROGRAM, HookedNode
from tests.component.node_rig import node_rig, simulation
from tests.fakes.pod_resources import FakeKubelet, pod, serving
from tests.fakes.proc import FakeProc
from tests.kube.build import criu_folder
from tests.kube.cgroups import Cgroups
from tests.kube.tools import run
from tests.native_programs import build
from tests.waiting import eventually

LARGE_MIB = 256
"""Memory of the larger container; some hundreds of MiB are the least of a process that uses CUDA."""

OTHERS = 24
"""More than are asked about within the second for which the plugin remembers one without a claim."""

_FREEZING = re.compile(r"\(([0-9.]+)\) freezer\.state=FREEZING\n\(([0-9.]+)\)")
_POD = "22222222-3333-4444-8555-{:012x}"
_SMALL = "busybox sleep 1000000 & busybox sleep 1000000 & wait"
_LARGE = f"busybox dd if=/dev/zero bs={LARGE_MIB}M count=1 | busybox sleep 1000000"
"""It has read all when it waits for room in the pipe."""
_OPERATION_S = 60.0
_UNDER_WAY = {"STATE_DELEGATED", "STATE_VERIFYING"}


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
                "cgroupsPath": f"{self.cgroups.pods}/pod{_POD.format(number)}/{name}",
                "namespaces": [*namespaces, {"type": "network", "path": str(self.network)}],
            },
        }

    @property
    def _runc(self) -> tuple[str, ...]:
        return ("runc", "--root", str(self.folder / "runc"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is measured; the plugin runs, and the containers too.

    Attributes:
        program: gpuslice-hook as the plugin installed it.
        told: what the plugin told CRIU of it, as a configuration.
        mark: the file that its CDI spec mounts into its containers.
        claimed: a container with a claim.
        large: the same with `LARGE_MIB` of memory.
        others: some without.
    """

    node: HookedNode
    runc: Runc
    program: Path
    told: str
    claim: str
    mark: Path
    claimed: Container
    large: Container
    others: tuple[Container, ...]

    def wait_over(self, *, count: int) -> None:
        """Wait until there were so many operations, and none is under way.

        Raises:
            AssertionError: there are others, or one did not end well.
        """

        def over() -> bool:
            states = self.node.states()
            assert len(states) <= count, f"{len(states)} operations in place of {count}"
            assert set(states) <= {*_UNDER_WAY, "STATE_DONE"}, states
            return len(states) == count and not set(states) & _UNDER_WAY

        eventually(over, _OPERATION_S, f"{count} operations are done")


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """Start all of it in an empty folder, and leave nothing behind."""
    with ExitStack() as cleanup:
        node = cleanup.enter_context(_node(folder))
        _in_memory(folder / "run", cleanup)
        names, kubelet = folder / "names.sock", FakeKubelet()
        cleanup.enter_context(serving(names, kubelet))
        cleanup.enter_context(node.plugin(pod_resources_socket=str(names), log_format="json"))
        node.wait_served()
        eventually(lambda: node.installed and node.configured, 60, "the hook is installed")
        eventually(lambda: node.checkpointable() == {True}, 60, "the node can checkpoint")
        claim = node.claim(1, checkpoint="Required")
        node.rig.kubelet.prepare("pod", [claim])
        uid = claim.ref.uid
        kubelet.pods = (_told(node, claim),)
        mark = (folder / "run/claims" / uid).resolve()
        runc = cleanup.enter_context(_runc(folder / "runc"))
        runc.install()
        kinds = ((mark, False), (mark, True), *(((None, False),) * OTHERS))
        containers = []
        for number, (each, large) in enumerate(kinds, start=1):
            containers.append(runc.start(number, mark=each, large=large))
            cleanup.callback(runc.delete, containers[-1])
        yield Bench(
            node=node,
            runc=runc,
            program=node.host / PROGRAM[1:],
            told=f"action-script {node.host / PROGRAM[1:]}\n",
            claim=uid,
            mark=mark,
            claimed=containers[0],
            large=containers[1],
            others=tuple(containers[2:]),
        )


def _told(node: HookedNode, claim: KubeletClaim) -> messages.PodResources:
    """What the kubelet tells of the one pod with the claim."""
    told = pod("trainer", main=(claim.ref.name,))
    (claims,) = told.containers[0].dynamic_resources[0].claim_resources
    del claims.cdi_devices[:]
    for name in node.rig.kubelet.cdi_ids(claim.ref.uid):
        claims.cdi_devices.add(name=name)
    return told


def _in_memory(path: Path, cleanup: ExitStack) -> None:
    """Let a folder be in memory, as /run is on a node, if there is room; else it is on the disk."""
    shared = Path("/dev/shm")
    if os.access(shared, os.W_OK):
        path.symlink_to(cleanup.enter_context(TemporaryDirectory(dir=shared)))


@contextmanager
def _node(root: Path) -> Iterator[HookedNode]:
    """A node with a host of its own, except for its processes and cgroups, which are the real ones.

    Of it alone the plugin writes to: CRIU's configuration and the program.
    """
    host, image = root / "host", root / "image"
    for each in (host / "etc", host / "opt", image):
        each.mkdir(parents=True, mode=0o755)
    for name in ("proc", "sys"):
        (host / name).symlink_to(f"/{name}")
    build(image)
    # The plugin finds the program on PATH; runc finds CRIU there.
    os.environ["PATH"] = f"{image}:{criu_folder()}:{os.environ['PATH']}"
    with node_rig(root, simulation=simulation()) as rig:
        yield HookedNode(rig=rig, host=host, proc=FakeProc(root / "no-proc"), image=image)


@contextmanager
def _runc(folder: Path) -> Iterator[Runc]:
    folder.mkdir()
    cgroups = Cgroups(name=f"gpuslice-bench-{os.getpid()}")
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        cgroups.create()
        network = Path(f"/proc/{holder.pid}/ns/net")
        own = Path("/proc/self/ns/net").readlink()
        eventually(lambda: network.readlink() != own, 30, "there is a network namespace")
        yield Runc(folder=folder, cgroups=cgroups, network=network)
    finally:
        cgroups.destroy()
        holder.kill()
        holder.wait()


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
