"""A node whose real plugin answers for containers of the real runc, which CRIU dumps."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from dra_driver.plan.claim_marks import MARKER_PATH
from tests.component.hooked_node import PROGRAM, HookedNode
from tests.component.node_rig import node_rig, simulation
from tests.fakes.pod_resources import FakeKubelet, pod, serving
from tests.fakes.proc import FakeProc
from tests.kube.build import criu_folder
from tests.kube.cgroups import Cgroups
from tests.kube.tools import run
from tests.native_programs import build
from tests.waiting import eventually

_POD = "22222222-3333-4444-8555-66666666666{}"
_SCRIPT = "sleep 1000000 & sleep 1000000 & wait"
_OPERATION_S = 60.0
_UNDER_WAY = {"STATE_DELEGATED", "STATE_VERIFYING"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One that runs a shell with two children; `config` is what runc lets CRIU read for it."""

    id: str
    pid: int
    config: Path


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

    def start(self, number: int, *, mark: Path | None) -> Container:
        """Run a container; with a claim, `mark` is the file that its CDI spec mounts."""
        name = f"{number:x}" * 64
        bundle = self.folder / f"bundle-{number}"
        (bundle / "rootfs/bin").mkdir(parents=True)
        busybox = run(("sh", "-c", "command -v busybox")).strip()
        (bundle / "rootfs/bin/busybox").write_bytes(Path(busybox).read_bytes())
        (bundle / "rootfs/bin/busybox").chmod(0o755)
        config = bundle / "criu.conf"
        config.write_text("")
        group = f"{self.cgroups.pods}/pod{_POD.format(number)}/{name}"
        spec = _spec(group, self.network, config=config, mark=mark)
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
        return Container(id=name, pid=int(pid.read_text()), config=config)

    def dump(self, container: Container) -> float:
        """Checkpoint it as containerd does, and leave it running; gives the seconds."""
        images, work = self.folder / "images", self.folder / "work"
        places = ("--image-path", str(images), "--work-path", str(work))
        command = (*self._runc, "checkpoint", "--leave-running", *places, container.id)
        started = perf_counter()
        run(command)
        ended = perf_counter()
        run(("rm", "-r", str(images)))
        return ended - started

    def delete(self, container: Container) -> None:
        run((*self._runc, "delete", "--force", container.id))

    @property
    def _runc(self) -> tuple[str, ...]:
        return ("runc", "--root", str(self.folder / "runc"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is measured; the plugin runs, and the containers too.

    Attributes:
        program: gpuslice-hook as the plugin installed it.
        told: what the plugin told CRIU of it, as a configuration.
        claimed: a container with a claim.
        other: one without.
    """

    node: HookedNode
    runc: Runc
    program: Path
    told: str
    claim: str
    claimed: Container
    other: Container

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
        names, kubelet = folder / "names.sock", FakeKubelet()
        cleanup.enter_context(serving(names, kubelet))
        cleanup.enter_context(node.plugin(pod_resources_socket=str(names), log_format="json"))
        node.wait_served()
        eventually(lambda: node.installed and node.configured, 60, "the hook is installed")
        eventually(lambda: node.checkpointable() == {True}, 60, "the node can checkpoint")
        claim = node.claim(1, checkpoint="Required")
        node.rig.kubelet.prepare("pod", [claim])
        kubelet.pods = (pod("trainer", main=(claim.ref.name,)),)
        uid = claim.ref.uid
        runc = cleanup.enter_context(_runc(folder / "runc"))
        containers = []
        for number, mark in ((1, node.rig.root / "run/claims" / uid), (2, None)):
            containers.append(runc.start(number, mark=mark))
            cleanup.callback(runc.delete, containers[-1])
        yield Bench(
            node=node,
            runc=runc,
            program=node.host / PROGRAM[1:],
            told=f"action-script {node.host / PROGRAM[1:]}\n",
            claim=uid,
            claimed=containers[0],
            other=containers[1],
        )


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


def _spec(group: str, network: Path, *, config: Path, mark: Path | None) -> Mapping[str, Any]:
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
        {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
    ]
    if mark is not None:
        options = ["ro", "nosuid", "nodev", "bind"]
        mounts.append({"destination": MARKER_PATH, "source": str(mark), "options": options})
    namespaces: list[dict[str, str]] = [{"type": each} for each in ("pid", "ipc", "uts", "mount")]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/busybox", "sh", "-c", _SCRIPT.replace("sleep", "/bin/busybox sleep")],
            "env": ["PATH=/bin"],
            "cwd": "/",
        },
        "mounts": mounts,
        "annotations": {"org.criu.config": str(config)},
        "linux": {
            "cgroupsPath": group,
            "namespaces": [*namespaces, {"type": "network", "path": str(network)}],
        },
    }
