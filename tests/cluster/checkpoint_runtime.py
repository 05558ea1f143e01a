"""What the runtime and the kernel say of a container: the truth that no log can replace."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from tests.cluster.checkpoint_site import Count
from tests.cluster.life_processes import processes
from tests.cluster.life_site import Tenant
from tests.kube.cluster import Cluster
from tests.kube.components import CONTAINERD_SOCKET
from tests.kube.process import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeState:
    """One container: containerd's word, whether its cgroup is frozen, its first process's state.

    `process` is the letter of /proc/PID/stat, where S and R are at work; empty if there is none.
    """

    task: str
    frozen: bool
    process: str

    @classmethod
    def of(cls, cluster: Cluster, tenant: Tenant) -> Self:
        return cls(
            task=cluster.ctr.tasks().get(_container(tenant), ""),
            frozen=_frozen(tenant.pid),
            process=_process(tenant.pid),
        )

    @property
    def at_work(self) -> bool:
        return self.task == "RUNNING" and not self.frozen and self.process in {"R", "S"}


def checkpoint_until(cluster: Cluster, tenant: Tenant, *, deadline_s: float) -> None:
    """Ask the runtime for a checkpoint as the kubelet does, whose own limit is two minutes at least.

    Raises:
        RpcError: what the runtime answers, or that the time was up.
    """
    fields = (_container(tenant), "/run/checkpoint-until.tar")
    request = b"".join(
        bytes((number << 3 | 2, len(value))) + value.encode()
        for number, value in enumerate(fields, start=1)
    )
    with grpc.insecure_channel(f"unix://{cluster.node_path(CONTAINERD_SOCKET)}") as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(
            "/runtime.v1.RuntimeService/CheckpointContainer"
        )
        call(request, timeout=deadline_s)


def resume(cluster: Cluster, tenant: Tenant) -> None:
    """Let a paused container run on."""
    cluster.ctr.resume(_container(tenant))


def wait_paused(cluster: Cluster, tenant: Tenant) -> None:
    """Wait until a container is paused, as containerd and the kernel say."""

    def problem() -> str:
        state = RuntimeState.of(cluster, tenant)
        return "" if state.task == "PAUSED" and state.frozen else str(state)

    wait_until(problem, waiting_for=f"pod {tenant.name} to be paused")


def wait_at_work(cluster: Cluster, tenant: Tenant) -> None:
    """Wait until the same container as before runs, thawed, and counts on."""
    seen = Count.of(tenant)

    def problem() -> str:
        state, now = RuntimeState.of(cluster, tenant), Count.of(tenant)
        goes_on = now.process == seen.process and now.number > seen.number
        return "" if state.at_work and goes_on else f"{state} at {now}"

    wait_until(problem, waiting_for=f"pod {tenant.name} to count on from {seen}")


def dump_log(cluster: Cluster, tenant: Tenant) -> str:
    """Give what CRIU wrote down when it dumped a container last."""
    folder = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
    return cluster.node_path(f"{folder}/{_container(tenant)}/criu-dump.log").read_text()


def wait_nothing_left(cluster: Cluster, container: str) -> None:
    """Wait until no process of a container is there, and containerd knows of none that runs."""

    def problem() -> str:
        task = cluster.ctr.tasks().get(container.removeprefix("containerd://"), "")
        left = processes(cluster, container)
        return f"{task} with {left}" if left or task not in {"", "STOPPED"} else ""

    wait_until(problem, waiting_for=f"the end of container {container}")


def _container(tenant: Tenant) -> str:
    return tenant.container.removeprefix("containerd://")


def _frozen(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    folders = dict(line.split(":", 2)[1:] for line in lines)
    if "freezer" in folders:
        state = Path(f"/sys/fs/cgroup/freezer{folders['freezer']}/freezer.state")
        return state.read_text() != "THAWED\n"
    events = Path(f"/sys/fs/cgroup{folders['']}/cgroup.events").read_text()
    return "frozen 1" in events.splitlines()


def _process(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
