"""A team's pods on a node with the driver, while parts of the cluster come and go."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import deployed
from tests.cluster.deployed import DRIVER
from tests.cluster.life_node import Holdings, nothing_given_twice, wait_until_settled
from tests.cluster.life_processes import first_process
from tests.kube.client import ApiError, Json
from tests.kube.cluster import Cluster
from tests.kube.objects import create_namespace
from tests.kube.pods import STAY, busybox_pod, events_of, wait_for_pod
from tests.kube.process import NotReadyError, wait_until

RESOURCES = "/apis/resource.k8s.io/v1"
WHOLE: Json = {"deviceClassName": f"gpu.{DRIVER}"}
"""A request without numbers."""

# The kubelet's attempts are 10 to 18 s apart, and the first may come too early for the authorizer.
START_TIMEOUT_S = 90.0
END_TIMEOUT_S = 90.0


def part(compute: int, memory: str) -> Json:
    """Give a request for a part of a GPU."""
    amounts = {"compute": str(compute), "memory": memory}
    return {"deviceClassName": f"slice.{DRIVER}", "capacity": {"requests": amounts}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A running pod as its own processes see it: equal as long as nothing happens to it."""

    name: str
    uid: str
    container: str
    restarts: int
    pid: int
    environment: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One namespace of a cluster with the driver."""

    cluster: Cluster
    namespace: str

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    @property
    def folder(self) -> Path:
        """The folder that all pods see as /life."""
        return self.cluster.node_path(f"/run/{self.namespace}")

    def create(
        self,
        name: str,
        *requests: Json,
        command: Sequence[str] = STAY,
        change: Callable[[Json], None] = lambda _: None,
        **spec: Any,
    ) -> None:
        """Create a pod with a claim of its own for each request; these are all called ``gpu``.

        A request's ``config`` becomes the claim's configuration for the driver. ``change`` is
        called with the pod before it is created.
        """
        for number, request in enumerate(requests):
            exactly = {key: value for key, value in request.items() if key != "config"}
            devices: Json = {"requests": [{"name": "gpu", "exactly": exactly}]}
            if "config" in request:
                opaque = {"driver": DRIVER, "parameters": request["config"]}
                devices["config"] = [{"opaque": opaque}]
            body = {"spec": {"devices": devices}}
            self._apply("ResourceClaimTemplate", f"{name}-{number}", body)
        templates = [
            {"name": f"gpu-{number}", "resourceClaimTemplateName": f"{name}-{number}"}
            for number in range(len(requests))
        ]
        self._create_pod(name, templates, command, spec, change=change)

    def create_with(self, name: str, claim: str, **spec: Any) -> None:
        """Create a pod that uses an existing claim."""
        self._create_pod(name, [{"name": "gpu-0", "resourceClaimName": claim}], STAY, spec)

    def create_claim(self, name: str, request: Json) -> None:
        body = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
        self._apply("ResourceClaim", name, body)

    def start(self, name: str, *requests: Json, **more: Any) -> Tenant:
        """Create a pod, as `create` does, and give it once it runs."""
        self.create(name, *requests, **more)
        return self.started(name)

    def started(self, name: str, *, timeout_s: float = START_TIMEOUT_S) -> Tenant:
        """Wait for a pod to run, and give it."""
        wait_for_pod(self.cluster.admin, name, namespace=self.namespace, timeout_s=timeout_s)
        return self.seen(name)

    def seen(self, name: str) -> Tenant:
        """Give a running pod."""
        pod = self.cluster.admin.get(f"{self.pods}/{name}")
        (status,) = pod["status"]["containerStatuses"]
        pid = first_process(self.cluster, status["containerID"])
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
        return Tenant(
            name=name,
            uid=pod["metadata"]["uid"],
            container=status["containerID"],
            restarts=status["restartCount"],
            pid=pid,
            environment=tuple(sorted(each for each in variables if "GPUSLICE" in each)),
        )

    def wait_init_container(self, name: str) -> str:
        """Wait until the only init container of a pod runs, and give its id."""
        found: list[str] = []

        def problem() -> str:
            status = self.pod(name)["status"]
            running = [
                each["containerID"]
                for each in status.get("initContainerStatuses", ())
                if "running" in each["state"]
            ]
            found[:] = running
            return "" if running else str(status.get("initContainerStatuses", "nothing yet"))

        wait_until(problem, waiting_for=f"the init container of pod {name}", timeout_s=60.0)
        return found[0]

    def unchanged(self, *tenants: Tenant) -> None:
        """Fail if something happened to running pods."""
        assert tuple(self.seen(tenant.name) for tenant in tenants) == tenants

    def wait_restarted(self, tenant: Tenant) -> None:
        """Wait until a pod runs in another container than before."""

        def problem() -> str:
            status = self.pod(tenant.name)["status"]["containerStatuses"][0]
            return "" if status["containerID"] != tenant.container else str(status)

        wait_until(
            problem, waiting_for=f"pod {tenant.name} to start again", timeout_s=START_TIMEOUT_S
        )

    def delete(self, *names: str, **options: str) -> None:
        """Ask for the end of pods."""
        for name in names:
            self.cluster.admin.delete(f"{self.pods}/{name}", **options)

    def wait_gone(self, *names: str, timeout_s: float = END_TIMEOUT_S) -> None:
        """Wait until pods are gone; without names, all of them."""

        def problem() -> str:
            left = [
                pod["metadata"]["name"]
                for pod in self.cluster.admin.list(self.pods)
                if not names or pod["metadata"]["name"] in names
            ]
            return f"{', '.join(left)} are there" if left else ""

        try:
            wait_until(problem, waiting_for="pods to be gone", timeout_s=timeout_s)
        except NotReadyError as error:
            raise NotReadyError(f"{error}\n{deployed.plugin_log(self.cluster)}") from None

    def events(self, name: str) -> list[str]:
        return events_of(self.cluster.admin, name).splitlines()

    def wait_event(self, name: str, *texts: str) -> str:
        """Wait for an event of a pod that has all the texts in it, and give it."""

        def found() -> list[str]:
            return [event for event in self.events(name) if all(text in event for text in texts)]

        wait_until(
            lambda: "" if found() else str(self.events(name)),
            waiting_for=f"an event of pod {name} with {texts}",
            timeout_s=START_TIMEOUT_S,
        )
        return found()[0]

    def pod(self, name: str) -> Json:
        return self.cluster.admin.get(f"{self.pods}/{name}")

    def phase(self, name: str) -> str:
        return str(self.pod(name)["status"]["phase"])

    def claim(self, name: str) -> Json:
        path = f"{RESOURCES}/namespaces/{self.namespace}/resourceclaims/{name}"
        return self.cluster.admin.get(path)

    def claim_of(self, name: str, number: int = 0) -> Json:
        """Give the claim that was made for a pod."""
        statuses = self.pod(name)["status"]["resourceClaimStatuses"]
        (claim,) = (
            each["resourceClaimName"] for each in statuses if each["name"] == f"gpu-{number}"
        )
        return self.claim(claim)

    def clear(self) -> None:
        """Delete everything, and fail unless nothing of it is left on the node."""
        admin = self.cluster.admin
        admin.delete(self.pods)
        self.wait_gone()
        admin.delete(f"{RESOURCES}/namespaces/{self.namespace}/resourceclaims")
        wait_until_settled(self.cluster)
        assert Holdings.of(self.cluster).claims == frozenset()
        admin.delete(f"/api/v1/namespaces/{self.namespace}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _create_pod(
        self,
        name: str,
        claims: list[Json],
        command: Sequence[str],
        spec: dict[str, Any],
        *,
        change: Callable[[Json], None] = lambda _: None,
    ) -> None:
        settings = {"terminationGracePeriodSeconds": 5, "resourceClaims": claims, **spec}
        pod = busybox_pod(name, command=command, namespace=self.namespace, **settings)
        path = {"path": f"/run/{self.namespace}", "type": "DirectoryOrCreate"}
        pod["spec"]["volumes"] = [{"name": "life", "hostPath": path}]
        (container,) = pod["spec"]["containers"]
        container["volumeMounts"] = [{"name": "life", "mountPath": "/life"}]
        container["resources"] = {"claims": [{"name": each["name"]} for each in claims]}
        change(pod)
        self.cluster.admin.create(self.pods, pod)

    def _apply(self, kind: str, name: str, spec: Json) -> None:
        metadata = {"name": name, "namespace": self.namespace}
        api = RESOURCES.removeprefix("/apis/")
        manifest = {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
        self.cluster.admin.apply(manifest)


@contextmanager
def site_on(cluster: Cluster, namespace: str) -> Iterator[Site]:
    """Give a new namespace of a cluster; what its pods held has to be free again afterwards."""
    create_namespace(cluster.admin, namespace)
    wait_until(
        lambda: _identity_problem(cluster, namespace),
        waiting_for=f"the identity of pods of {namespace}",
    )
    site = Site(cluster=cluster, namespace=namespace)
    with nothing_given_twice(cluster):
        yield site
        site.clear()


def _identity_problem(cluster: Cluster, namespace: str) -> str:
    try:
        cluster.admin.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except ApiError as error:
        return str(error)
    return ""
