"""The driver's Pod and what it publishes, while the Pod is replaced and comes back."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import deployed
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until


def plugin_container(cluster: Cluster) -> str:
    """Give the id of the driver's container."""
    (status,) = deployed.plugin_pod(cluster)["status"]["containerStatuses"]
    return str(status["containerID"])


def registrations(cluster: Cluster, pod_uid: str) -> int:
    """Give how often the kubelet has registered a driver's Pod, as the Pod's log on the node says."""
    logs = cluster.node_path("/var/log/pods").glob(f"*_{pod_uid}/*/*.log")
    return sum(path.read_text().count("The kubelet registered the driver") for path in logs)


def renew_plugin(cluster: Cluster) -> None:
    """Have a driver's Pod that never crashed: others wait ever longer before they start again."""
    pod = deployed.plugin_pod(cluster)
    if pod["status"]["containerStatuses"][0]["restartCount"]:
        replace_plugin(cluster)


def replace_plugin(cluster: Cluster) -> None:
    """Replace the driver's Pod by another, and wait until the first one is gone."""
    name = deployed.plugin_pod(cluster)["metadata"]["name"]
    cluster.admin.delete(f"/api/v1/namespaces/{deployed.NAMESPACE}/pods/{name}")
    wait_until(
        lambda: (
            name if any(each["metadata"]["name"] == name for each in plugin_pods(cluster)) else ""
        ),
        waiting_for="the end of the Pod",
        timeout_s=90.0,
    )
    deployed.wait_deployed(cluster)


def plugin_pods(cluster: Cluster) -> tuple[Json, ...]:
    """Give the driver's Pods, those that are ending among them."""
    return deployed.pods_of(cluster)


def published_slices(cluster: Cluster) -> frozenset[str]:
    """Give the UIDs of the node's ResourceSlices."""
    found = cluster.admin.list(deployed.SLICES, fieldSelector=of_node(cluster))
    return frozenset(each["metadata"]["uid"] for each in found)


def of_node(cluster: Cluster) -> str:
    """Give the field selector of the driver's ResourceSlices of the node."""
    return f"spec.driver={deployed.DRIVER},spec.nodeName={cluster.node_name}"


def wait_slices_renewed(
    cluster: Cluster, *, old: frozenset[str], devices: tuple[Json, ...]
) -> None:
    """Wait until all old slices are gone and new ones offer the same devices."""

    def problem() -> str:
        if kept := old & published_slices(cluster):
            return f"slices {sorted(kept)} are the old ones"
        found = deployed.published(cluster)
        return "" if found == devices else f"{len(found)} devices of {len(devices)}"

    wait_until(problem, waiting_for="new slices with the same devices")


def plugins(cluster: Cluster) -> tuple[str, ...]:
    """Give the names of the driver's Pods that are ready and not asked to end."""
    return tuple(
        pod["metadata"]["name"]
        for pod in plugin_pods(cluster)
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            (each["type"], each["status"]) == ("Ready", "True")
            for each in pod["status"].get("conditions", ())
        )
    )


@contextmanager
def update(cluster: Cluster) -> Iterator[None]:
    """Roll the driver: its new Pod starts, and the old one is asked to end on leaving."""
    before = deployed.daemon_set(cluster)
    rolled = {"annotations": {"gpuslice.io/rolled": before["metadata"]["resourceVersion"]}}
    # No Pod counts as available for so long.
    change(cluster, {"minReadySeconds": 3600, "template": {"metadata": rolled}})
    try:
        yield
    finally:
        change(cluster, {"minReadySeconds": before["spec"].get("minReadySeconds")})


def change(cluster: Cluster, spec: Json) -> None:
    """Merge into the spec of the driver's DaemonSet."""
    name = deployed.daemon_set(cluster)["metadata"]["name"]
    path = f"/apis/apps/v1/namespaces/{deployed.NAMESPACE}/daemonsets/{name}"
    cluster.admin.patch(path, {"spec": spec})
