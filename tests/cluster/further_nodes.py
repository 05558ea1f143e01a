"""Further nodes of a cluster: the plugin's own processes, and Nodes that no kubelet stands behind.

The scheduler gives them pods by the slices that the driver publishes for them; nothing runs there.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import yaml

from tests.cluster.deployed import NAMESPACE, published, wait_published
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.objects import create_node, service_account_token
from tests.kube.process import NotReadyError, wait_until

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_SERVICE_ACCOUNT = "gpuslice-plugin"
# The controller-manager gives up a node after 50 s without.
_RENEWAL_S = 5.0


@contextmanager
def further_nodes(cluster: Cluster, simulated: Mapping[str, str | Json]) -> Iterator[None]:
    """Have nodes beside the real one: name → what `--simulate` takes, or a document for it.

    The driver has to be deployed. Ready and published inside; gone with their slices afterwards.
    """
    with ExitStack() as stack:
        for name in simulated:
            stack.enter_context(_node(cluster, name))
        # At once: nobody would call them ready again that were given up meanwhile.
        stack.enter_context(_alive(cluster, tuple(simulated)))
        for name, simulate in simulated.items():
            stack.enter_context(_plugin(cluster, name, simulate))
        for name in simulated:
            wait_until(
                lambda name=name: _problem(cluster, name),  # type: ignore[misc]
                waiting_for=f"node {name} to be ready",
                timeout_s=60.0,
            )
            _wait_published(cluster, name)
        yield


@contextmanager
def _node(cluster: Cluster, name: str) -> Iterator[None]:
    create_node(cluster.admin, name)
    try:
        # Equal nodes, so that the scheduler spreads pods evenly.
        path = f"/api/v1/nodes/{cluster.node_name}"
        resources = cluster.admin.get(path)["status"]["allocatable"]
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "simulated"}
        cluster.admin.patch(
            f"/api/v1/nodes/{name}/status",
            {"status": {"conditions": [ready], "capacity": resources, "allocatable": resources}},
        )
        yield
    finally:
        # Slices belong to their Node.
        cluster.admin.delete(f"/api/v1/nodes/{name}")
        wait_until(
            lambda: "" if not published(cluster, node=name) else "still published",
            waiting_for=f"the end of the slices of {name}",
        )


@contextmanager
def _plugin(cluster: Cluster, name: str, simulate: str | Json) -> Iterator[None]:
    folder = cluster.folder / "nodes" / name
    for each in ("r", "p"):
        (folder / each).mkdir(parents=True)
    token = service_account_token(
        cluster.admin, namespace=NAMESPACE, name=_SERVICE_ACCOUNT, node=name
    )
    flags = {
        "node-name": name,
        "kubeconfig": str(cluster.write_kubeconfig(name, token=token)),
        "simulate": simulate if isinstance(simulate, str) else _write(folder, simulate),
        "kubelet-registrar-directory-path": str(folder / "r"),
        "kubelet-plugins-directory-path": str(folder / "p"),
        "cdi-root": str(folder / "cdi"),
        "state-dir": str(folder / "state"),
        "run-dir": str(folder / "run"),
    }
    command = [sys.executable, "-m", "dra_driver", "plugin"]
    daemons, process = cluster.cell.daemons, f"plugin-{name}"
    daemons.start(process, [*command, *(f"--{key}={value}" for key, value in flags.items())])
    try:
        yield
    finally:
        daemons.stop(process)
        shutil.rmtree(folder)


@contextmanager
def _alive(cluster: Cluster, names: tuple[str, ...]) -> Iterator[None]:
    stop = Event()
    for name in names:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()},
        }
        cluster.admin.create(_LEASES, lease)
    renewal = Thread(target=_renew, args=(cluster, names, stop), name="lease-renewal")
    renewal.start()
    try:
        yield
    finally:
        stop.set()
        renewal.join()
        for name in names:
            cluster.admin.delete(f"{_LEASES}/{name}")


def _wait_published(cluster: Cluster, name: str) -> None:
    try:
        wait_published(cluster, node=name)
    except NotReadyError as error:
        log = cluster.cell.daemons.log_tail(f"plugin-{name}")
        raise NotReadyError(f"{error}. {log}") from None


def _renew(cluster: Cluster, names: tuple[str, ...], stop: Event) -> None:
    while not stop.wait(_RENEWAL_S):
        for name in names:
            cluster.admin.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now()}})


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _write(folder: Path, document: Json) -> str:
    file = folder / "node.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def _problem(cluster: Cluster, name: str) -> str:
    taints = cluster.admin.get(f"/api/v1/nodes/{name}")["spec"].get("taints", ())
    return ", ".join(taint["key"] for taint in taints)
