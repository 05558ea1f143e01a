"""A node whose real plugin answers for containers of the real runc, which CRIU dumps."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from dra_api.kubelet import podresources_v1_pb2 as messages
from dra_driver.model.claim import PodRef
from dra_driver.sim.kubelet_values import KubeletClaim
from tests.bench.runc import POD_UID, Container, Runc
from tests.component.hooked_node import PROGRAM, HookedNode
from tests.component.node_rig import node_rig, simulation
from tests.fakes.pod_resources import FakeKubelet, pod, serving
from tests.fakes.proc import FakeProc
from tests.kube.build import criu_folder
from tests.kube.cgroups import Cgroups
from tests.native_programs import build
from tests.waiting import eventually

FIRSTS = 53
"""Containers with a claim that have run for a while when they are called for the first time."""

FRESH = 1000
"""Number of the first container that is started to be called at once."""

OTHERS = 24
"""More than are asked about within the second for which the plugin remembers one without a claim."""

_LARGE_ONE = 2
_CLAIMED = range(1, 3 + FIRSTS)
_OTHERS = range(_CLAIMED.stop, _CLAIMED.stop + OTHERS)
_FRESH = range(FRESH, FRESH + FIRSTS)
_OPERATION_S = 60.0
_UNDER_WAY = {"STATE_DELEGATED", "STATE_VERIFYING"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What is measured; the plugin runs, and the containers too.

    Attributes:
        program: gpuslice-hook as the plugin installed it.
        told: what the plugin told CRIU of it, as a configuration.
        mark: the file that its CDI spec mounts into its containers.
        claimed: a container with a claim.
        large: the same with `LARGE_MIB` of memory.
        firsts: more that nobody has called yet, each in a pod of its own.
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
    firsts: tuple[Container, ...]
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
        pods = [_pod(number) for number in (*_CLAIMED, *_FRESH)]
        claim = node.claim(1, checkpoint="Required", pods=pods)
        node.rig.kubelet.prepare("pod", [claim])
        uid = claim.ref.uid
        kubelet.pods = tuple(_told(node, claim, each) for each in pods)
        mark = (folder / "run/claims" / uid).resolve()
        runc = cleanup.enter_context(_runc(folder / "runc"))
        runc.install()
        containers = []
        for number in (*_CLAIMED, *_OTHERS):
            shown = mark if number in _CLAIMED else None
            containers.append(runc.start(number, mark=shown, large=number == _LARGE_ONE))
            cleanup.callback(runc.delete, containers[-1])
        asked = kubelet.asked
        eventually(lambda: kubelet.asked > asked, 60, "the kubelet is asked about all of them")
        yield Bench(
            node=node,
            runc=runc,
            program=node.host / PROGRAM[1:],
            told=f"action-script {node.host / PROGRAM[1:]}\n",
            claim=uid,
            mark=mark,
            claimed=containers[0],
            large=containers[1],
            firsts=tuple(containers[2 : len(_CLAIMED)]),
            others=tuple(containers[len(_CLAIMED) :]),
        )


def _pod(number: int) -> PodRef:
    return PodRef(name=f"trainer-{number}", uid=POD_UID.format(number))


def _told(node: HookedNode, claim: KubeletClaim, ref: PodRef) -> messages.PodResources:
    """What the kubelet tells of a pod with the claim."""
    told = pod(ref.name, main=(claim.ref.name,))
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
