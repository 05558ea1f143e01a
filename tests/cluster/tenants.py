"""Pods that use GPUs: from the shipped examples, and what is seen from inside them."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.cluster.deployed import MANIFESTS
from tests.kube.client import Client, Json
from tests.kube.cluster import Cluster
from tests.kube.pods import delete_pod
from tests.kube.process import NotReadyError, wait_until

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
PODS = "/api/v1/namespaces/{}/pods"

# The kubelet tries a failed Prepare again every 10 to 18 s here; busy cores take longer.
START_TIMEOUT_S = 75.0

_SCHEDULER_FORGETS_S = 6.0

_EXAMPLES = MANIFESTS / "examples"
_SIMULATED_NODE = re.compile(r"gpuslice-sim\d+")


def example(name: str) -> tuple[Json, ...]:
    """Give the objects of a shipped example, whose pods end soon after they are asked to."""
    path = Path(_EXAMPLES, name)
    objects = [each for each in yaml.safe_load_all(path.read_text()) if each]
    for each in objects:
        for spec in _pod_specs(each):
            # Not none at all: a pod without any is gone before the node has let go of its claim.
            spec["terminationGracePeriodSeconds"] = 1
    return tuple(objects)


def apply_example(
    cluster: Cluster,
    name: str,
    *,
    namespace: str,
    node: str | None = None,
    change: Callable[[Json], None] = lambda _: None,
) -> tuple[Json, ...]:
    """Apply an example to a namespace, which also takes the labels of the one it brings along.

    Args:
        cluster: where.
        name: of the file in manifests/examples.
        namespace: an existing one.
        node: where its pods have to run; default: anywhere.
        change: called with each object before it is applied.
    """
    applied = []
    for each in example(name):
        change(each)
        for spec in _pod_specs(each):
            if node is not None:
                spec["nodeSelector"] = {"kubernetes.io/hostname": node}
        if each["kind"] == "Namespace":
            labels = {"metadata": {"labels": each["metadata"].get("labels", {})}}
            cluster.admin.patch(f"/api/v1/namespaces/{namespace}", labels)
            continue
        each["metadata"]["namespace"] = namespace
        applied.append(cluster.admin.apply(each))
    return tuple(applied)


def named(name: str) -> Callable[[Json], None]:
    """Give an example's pod another name, for one beside it: a `change` of `apply_example`."""

    def change(each: Json) -> None:
        if each["kind"] == "Pod":
            each["metadata"]["name"] = name

    return change


def delete_pods(cluster: Cluster, namespace: str, *names: str) -> None:
    """Delete pods and wait until they and what they held are gone."""
    for name in names:
        delete_pod(cluster.admin, name, namespace=namespace)


def pods(cluster: Cluster, namespace: str) -> tuple[Json, ...]:
    return cluster.admin.list(PODS.format(namespace))


def wait_running(
    cluster: Cluster, namespace: str, *, count: int, timeout_s: float = START_TIMEOUT_S
) -> tuple[Json, ...]:
    """Give a namespace's pods, by name, once there are `count` of them and all are ready.

    Pods that are bound to another node than the real one count as ready: nothing runs there.

    Raises:
        NotReadyError: the time was up; with the pods' states and events.
    """
    wake_at_s = time.monotonic() + _SCHEDULER_FORGETS_S

    def problem() -> str:
        nonlocal wake_at_s
        found = pods(cluster, namespace)
        states = [_state(cluster, pod) for pod in found]
        if time.monotonic() > wake_at_s and any("on None" in state for state in states):
            wake_at_s += _SCHEDULER_FORGETS_S
            _wake_scheduler(cluster)
        return "" if states == ["Ready"] * count else f"{states}, {count} wanted"

    try:
        wait_until(problem, waiting_for=f"the pods of {namespace}", timeout_s=timeout_s)
    except NotReadyError as error:
        raise NotReadyError(f"{error}\n{_events(cluster.admin, namespace)}") from None
    return pods(cluster, namespace)


def wait_event(
    cluster: Cluster, namespace: str, text: str, *, timeout_s: float = START_TIMEOUT_S
) -> str:
    """Give the first event of a namespace that has a text in it.

    Raises:
        NotReadyError: the time was up; with all events.
    """

    def matching() -> list[str]:
        return [line for line in _events(cluster.admin, namespace).splitlines() if text in line]

    wait_until(
        lambda: "" if matching() else _events(cluster.admin, namespace) or "no event",
        waiting_for=f"an event with {text!r} in {namespace}",
        timeout_s=timeout_s,
    )
    return matching()[0]


def wait_unschedulable(cluster: Cluster, namespace: str, pod: str) -> str:
    """Give what the scheduler says of a pod that it cannot place.

    Raises:
        NotReadyError: the time was up; with the pod's state.
    """

    def message() -> str:
        found = cluster.admin.get(f"{PODS.format(namespace)}/{pod}")
        for condition in found["status"].get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                return str(condition["message"])
        return ""

    wait_until(
        lambda: "" if message() else "not said yet",
        waiting_for=f"the scheduler to give up pod {pod}",
        timeout_s=START_TIMEOUT_S,
    )
    return message()


def container_env(
    cluster: Cluster, pod: str, *, namespace: str, container: str | None = None
) -> dict[str, str]:
    """Give the environment of a container's processes; default: of the first container."""
    lines = _exec(cluster, pod, namespace, container, "env").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value for name, _, value in pairs}


def container_gpus(
    cluster: Cluster, pod: str, *, namespace: str, container: str | None = None
) -> tuple[str, ...]:
    """Give the names of the GPUs' device nodes in a container, sorted."""
    names = _exec(cluster, pod, namespace, container, "ls", "/dev").split()
    return tuple(sorted(name for name in names if _SIMULATED_NODE.fullmatch(name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a container is told of its GPUs by variables, and the device nodes that it has."""

    uuids: tuple[str, ...]
    compute_percent: tuple[int, ...]
    memory_mib: tuple[int, ...]
    nodes: tuple[str, ...]


def seen(cluster: Cluster, pod: str, *, namespace: str, container: str | None = None) -> Seen:
    """Look from inside a container; by default the first one."""
    env = container_env(cluster, pod, namespace=namespace, container=container)
    return Seen(
        uuids=_listed(env, "GPUSLICE_GPU_UUID"),
        compute_percent=tuple(map(int, _listed(env, "GPUSLICE_COMPUTE_PERCENT"))),
        memory_mib=tuple(map(int, _listed(env, "GPUSLICE_MEMORY_MIB"))),
        nodes=container_gpus(cluster, pod, namespace=namespace, container=container),
    )


def results(cluster: Cluster, namespace: str) -> tuple[Json, ...]:
    """Give the allocation results of all claims of a namespace."""
    claims = cluster.admin.list(CLAIMS.format(namespace))
    allocations = (claim.get("status", {}).get("allocation", {}) for claim in claims)
    return tuple(
        result
        for allocation in allocations
        for result in allocation.get("devices", {}).get("results", ())
    )


def clear(cluster: Cluster, namespace: str) -> None:
    """Delete a namespace, and wait until the nodes and the scheduler have all of it back."""
    admin = cluster.admin
    admin.delete(f"/apis/batch/v1/namespaces/{namespace}/jobs", propagationPolicy="Background")
    admin.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    for pod in pods(cluster, namespace):
        # Where no kubelet is, nobody would ever say that a pod has ended.
        if pod["spec"].get("nodeName", cluster.node_name) != cluster.node_name:
            path = f"{PODS.format(namespace)}/{pod['metadata']['name']}"
            admin.delete(path, gracePeriodSeconds="0")
    admin.delete(PODS.format(namespace))

    def problem() -> str:
        names = [pod["metadata"]["name"] for pod in pods(cluster, namespace)]
        return f"there are still {names}" if names else ""

    wait_until(problem, waiting_for=f"the end of the pods of {namespace}", timeout_s=60.0)
    admin.delete(CLAIMS.format(namespace))
    wait_until(
        lambda: str(results(cluster, namespace) or ""),
        waiting_for=f"the end of the claims of {namespace}",
        timeout_s=30.0,
    )
    admin.delete(f"/api/v1/namespaces/{namespace}")


def _listed(env: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(env[name].split(",")) if name in env else ()


def _pod_specs(manifest: Json) -> Iterable[Json]:
    match manifest["kind"]:
        case "Pod":
            return (manifest["spec"],)
        case "Job" | "Deployment" | "StatefulSet":
            return (manifest["spec"]["template"]["spec"],)
        case _:
            return ()


def _wake_scheduler(cluster: Cluster) -> None:
    """Let it look at waiting pods again, as it does when something changes in the cluster.

    1.37 was seen to leave a pod alone that it had tried while the devices were being freed; where
    nothing else happens, such a pod waits for five minutes.
    """
    labels = {"metadata": {"labels": {"gpuslice.test/woken": str(time.monotonic_ns())}}}
    cluster.admin.patch(f"/api/v1/nodes/{cluster.node_name}", labels)
    print(f"woke the scheduler of {cluster.version}")


def _state(cluster: Cluster, pod: Json) -> str:
    node = pod["spec"].get("nodeName")
    if node not in {None, cluster.node_name}:
        return "Ready"
    conditions = {each["type"]: each for each in pod["status"].get("conditions", ())}
    if conditions.get("Ready", {}).get("status") == "True":
        return "Ready"
    return f"{pod['metadata']['name']} {pod['status']['phase']} on {node}"


def _exec(cluster: Cluster, pod: str, namespace: str, container: str | None, *command: str) -> str:
    which = ("-c", container) if container else ()
    return cluster.kubectl("exec", "-n", namespace, pod, *which, "--", *command)


def _events(admin: Client, namespace: str) -> str:
    found = admin.list(f"/api/v1/namespaces/{namespace}/events")
    return "\n".join(
        f"{event['involvedObject']['name']}: {event.get('reason')}: {event.get('message')}"
        for event in found
    )
