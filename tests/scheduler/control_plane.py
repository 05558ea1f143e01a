"""etcd, kube-apiserver and kube-scheduler on loopback, and nodes that nobody runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Self

from tests import manifests
from tests.kube.build import kubernetes_binary
from tests.kube.client import Client, Json
from tests.kube.harness import ApiServer
from tests.kube.process import Server, free_port
from tests.scheduler.claims import classes
from tests.scheduler.values import Target

NAMESPACE = "tenants"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_SERVICE_ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"


class ControlPlane:
    """Used as a context manager; the scheduler is started by itself, when all nodes are there.

    There are no controllers: what they would do for claims is done by who calls.
    """

    def __init__(self, folder: Path, target: Target) -> None:
        self.target = target
        self._folder = folder
        self._api = ApiServer(folder, target.profile, version=target.version, whole_cluster=True)
        self._scheduler: Server | None = None

    def __enter__(self) -> Self:
        self._api.__enter__()
        self._prepare()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._scheduler is not None:
            self._scheduler.kill()
        self._api.__exit__(exc_type, exc, traceback)

    @property
    def admin(self) -> Client:
        return self._api.admin

    def classes(self) -> tuple[Json, ...]:
        return self.admin.list("/apis/resource.k8s.io/v1/deviceclasses")

    def add_node(self, name: str, slices: tuple[Json, ...]) -> tuple[Json, ...]:
        """Create a node with its ResourceSlices, and give them as the server stores them."""
        status = {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "1000"}}
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {**status, "capacity": status["allocatable"]},
        }
        self.admin.create("/api/v1/nodes", node)
        return tuple(
            self.admin.create(
                _SLICES,
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{name}-{number}"},
                    "spec": spec,
                },
            )
            for number, spec in enumerate(slices)
        )

    def add_claim(self, name: str, devices: Json) -> Json:
        """Create a claim, and give it as the server stores it."""
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": devices},
        }
        return self.admin.create(CLAIMS, body)

    def free_claim(self, name: str) -> None:
        """Take a claim's devices away, as kube-controller-manager does when no pod uses it."""
        status = {"allocation": None, "reservedFor": None}
        self.admin.patch(f"{CLAIMS}/{name}/status", {"status": status})

    def add_pod(self, name: str, *, node: str, claims: tuple[str, ...]) -> None:
        """Create a pod that can run on this node only, and that uses these claims."""
        self.admin.create(PODS, _pod(name, node=node, claims=claims))

    def start_scheduler(self) -> None:
        """Start it, again if it has ended; it reads all that is there before it looks at a pod."""
        if self._scheduler is not None:
            self._scheduler.kill()
        config = self._folder / "scheduler.json"
        connection = {"kubeconfig": str(self._api.kubeconfig), "qps": 1000, "burst": 2000}
        body = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": connection,
            "leaderElection": {"leaderElect": False},
        }
        config.write_text(json.dumps(body))
        binary = kubernetes_binary(self.target.version, whole_cluster=True)
        self._scheduler = Server(
            [
                *(str(binary), "kube-scheduler", f"--config={config}"),
                *("--bind-address=127.0.0.1", f"--secure-port={free_port()}"),
                *self.target.profile.gate_flags(),
            ],
            log=self._folder / "kube-scheduler.log",
        )

    @property
    def scheduler(self) -> Server:
        assert self._scheduler is not None, "start_scheduler() first"
        return self._scheduler

    def _prepare(self) -> None:
        admin_access = {"resource.kubernetes.io/admin-access": "true"}
        metadata = {"name": NAMESPACE, "labels": admin_access}
        self.admin.create(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata},
        )
        self.admin.create(
            _SERVICE_ACCOUNT,
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        )
        shipped = manifests.read(manifests.BASE / "deviceclasses.yaml")
        for body in (*shipped, *classes()):
            kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
            self.admin.create("/apis/resource.k8s.io/v1/deviceclasses", {**body, **kind})


def _pod(name: str, *, node: str, claims: tuple[str, ...]) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "none",
                    "resources": {"claims": [{"name": each} for each in claims]},
                }
            ],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}
            },
            # Nobody says that the nodes are ready.
            "tolerations": [{"operator": "Exists"}],
        },
    }
