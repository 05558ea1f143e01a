"""Pods on the real node of a cluster."""

from collections.abc import Sequence
from typing import Any

from tests.kube.client import ApiError, Client, Json
from tests.kube.process import NotReadyError, wait_until

# Ends at once when asked to: as the first process of a container, sleep alone does not.
STAY = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done")


def busybox_pod(
    name: str, *, command: Sequence[str] = STAY, namespace: str = "default", **spec: Any
) -> Json:
    """Give the manifest of a pod with one container ``main``; ``spec`` adds fields to its spec."""
    container = {"name": "main", "image": "busybox:1", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def run_pod(admin: Client, manifest: Json, *, timeout_s: float = 60.0) -> Json:
    """Create a pod and give it once it is running and ready, or has ended well."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "default")
    admin.create(f"/api/v1/namespaces/{namespace}/pods", manifest)
    return wait_for_pod(admin, metadata["name"], namespace=namespace, timeout_s=timeout_s)


def wait_for_pod(
    admin: Client, name: str, *, namespace: str = "default", timeout_s: float = 60.0
) -> Json:
    """Give a pod once it is running and ready, or has ended well.

    Raises:
        NotReadyError: the time was up; with the pod's state and its events.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        wait_until(
            lambda: _problem(admin.get(path)), waiting_for=f"pod {name}", timeout_s=timeout_s
        )
    except NotReadyError as error:
        raise NotReadyError(f"{error}. Events:\n{events_of(admin, name)}") from None
    return admin.get(path)


def wait_for_success(
    admin: Client, name: str, *, namespace: str = "default", timeout_s: float = 60.0
) -> None:
    """Wait until a pod has ended well.

    Raises:
        NotReadyError: the time was up; with the pod's phase.
    """
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"

    def problem() -> str:
        phase = str(admin.get(path)["status"]["phase"])
        return "" if phase == "Succeeded" else phase

    wait_until(problem, waiting_for=f"the success of pod {name}", timeout_s=timeout_s)


def delete_pod(
    admin: Client, name: str, *, namespace: str = "default", timeout_s: float = 60.0
) -> None:
    """Delete a pod and wait until it is gone, containers and all."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    admin.delete(path)

    def problem() -> str:
        try:
            return f"phase {admin.get(path)['status']['phase']}"
        except ApiError as error:
            if error.status != 404:
                raise
            return ""

    wait_until(problem, waiting_for=f"the end of pod {name}", timeout_s=timeout_s)


def events_of(admin: Client, name: str) -> str:
    """Give the events of an object of any kind and namespace, a line each."""
    found = admin.list("/api/v1/events", fieldSelector=f"involvedObject.name={name}")
    return "\n".join(f"{event.get('reason')}: {event.get('message')}" for event in found)


def _problem(pod: Json) -> str:
    status = pod["status"]
    if status["phase"] == "Succeeded":
        return ""
    for condition in status.get("conditions", ()):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return ""
    states = [container["state"] for container in status.get("containerStatuses", ())]
    return f"phase {status['phase']}, containers {states}"
