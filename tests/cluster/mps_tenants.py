"""Pods that share GPUs under MPS, and what is seen from inside them."""

from collections.abc import Callable
from pathlib import Path

from tests.cluster.deployed import DRIVER
from tests.cluster.life_site import Site, Tenant
from tests.cluster.mps_node import PROGRAM, MpsNode, environment, names_in
from tests.kube.client import Json

Change = Callable[[Json], None]

_FOLDER = "/run/gpuslice/mps"
_TOOLS = "/opt/mps"


def start_all(site: Site, *, change: Change = lambda _: None, **requests: Json) -> list[Tenant]:
    """Start a pod with one claim for each name; they are all created before any is waited for."""
    for name, request in requests.items():
        site.create(name, request, change=change)
    return [site.started(name) for name in requests]


def with_config(request: Json, **fields: object) -> Json:
    """Give a request whose claim has a configuration of these fields."""
    config = {"apiVersion": "config.gpuslice.io/v1alpha1", "kind": "SliceConfig", **fields}
    return {**request, "config": config}


def of_tier(request: Json, tier: str) -> Json:
    """Give a request for GPUs that enforce shares this strongly."""
    expression = f'device.attributes["{DRIVER}"].tier == "{tier}"'
    return {**request, "selectors": [{"cel": {"expression": expression}}]}


def with_program(node: MpsNode) -> Change:
    """Put the control program, and a system that it runs on, into a pod's container."""

    def change(pod: Json) -> None:
        (container,) = pod["spec"]["containers"]
        container.update(image="gpuslice:dev", imagePullPolicy="Never")
        path = {"path": str(node.programs), "type": "Directory"}
        pod["spec"]["volumes"].append({"name": "program", "hostPath": path})
        mount = {"name": "program", "mountPath": _TOOLS, "readOnly": True}
        container["volumeMounts"].append(mount)

    return change


def ask_inside(site: Site, tenant: Tenant, command: str) -> str:
    """Give what the control program prints for a command, run by root in a tenant's container."""
    script = f'[ "$(id -u)" = 0 ] && echo "{command}" | {_TOOLS}/{PROGRAM} 2>&1'
    return site.cluster.kubectl(
        "exec", "-n", site.namespace, tenant.name, "--", "sh", "-c", script
    ).strip()


def limits_inside(tenant: Tenant) -> tuple[str, str]:
    """What a tenant's process is told of compute and memory."""
    found = environment(tenant.pid)
    return (
        found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"],
        found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"],
    )


def sockets_inside(tenant: Tenant) -> frozenset[str]:
    """What a tenant's process sees of the daemon."""
    assert environment(tenant.pid)["CUDA_MPS_PIPE_DIRECTORY"] == _FOLDER
    return names_in(_inside(tenant, _FOLDER))


def socket_inside(tenant: Tenant) -> int:
    """The inode of the socket that a tenant's process finds."""
    return _inside(tenant, f"{_FOLDER}/control").stat().st_ino


def _inside(tenant: Tenant, path: str) -> Path:
    return Path(f"/proc/{tenant.pid}/root{path}")
