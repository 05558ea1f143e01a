"""CRIU on a cluster's node: with it the kubelet checkpoints containers and containerd restores them.

runc looks for the program when it needs it, so that it may come and go while the node runs. Its
configuration in ``/etc/criu`` is the node's own, whatever the machine has there; the folder itself
stays the same, as pods may have it mounted.
"""

import shlex
from collections.abc import Mapping
from pathlib import Path

from tests.kube.build import criu_folder
from tests.kube.client import Client, Json
from tests.kube.cluster import Cluster
from tests.kube.identities import API_SERVER
from tests.kube.objects import bind_cluster_role
from tests.kube.tools import run

CONFIG = "/etc/criu/runc.conf"
"""What runc lets CRIU read."""

_PROGRAM = "criu"
_ROLE = "checkpoint-containers"


def install_criu(cluster: Cluster, *, environment: Mapping[str, str] | None = None) -> None:
    """Put CRIU on the node; repeatable, with another environment."""
    variables = [f"{name}={value}" for name, value in (environment or {}).items()]
    command = shlex.join(["env", *variables, str(criu_folder() / _PROGRAM)])
    write_program(cluster, _PROGRAM, f'#!/bin/sh\nexec {command} "$@"\n')


def clear_criu(cluster: Cluster) -> None:
    """Leave the node without any configuration of CRIU."""
    script = 'mkdir -p "$0" && find "$0" -mindepth 1 -delete'
    run(cluster.cell.inside(("sh", "-c", script, str(Path(CONFIG).parent))))


def configure_criu(cluster: Cluster, *lines: str) -> None:
    """Let this, and nothing else, stand in the configuration that runc lets CRIU read."""
    script = 'mkdir -p "${0%/*}" && cat >"$0"'
    run(cluster.cell.inside(("sh", "-c", script, CONFIG)), stdin="".join(f"{x}\n" for x in lines))


def write_program(cluster: Cluster, name: str, text: str) -> Path:
    """Put a script on the node, as another of that name may be in use just now."""
    target = cluster.cell.programs / name
    new = target.with_name(f".{name}.new")
    new.write_text(text)
    new.chmod(0o755)
    return new.rename(target)


def allow_checkpoints(admin: Client) -> None:
    """Let the API server checkpoint containers for those who may use the node's proxy."""
    rule: Json = {"apiGroups": [""], "resources": ["nodes/checkpoint"], "verbs": ["create"]}
    admin.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": _ROLE},
            "rules": [rule],
        }
    )
    bind_cluster_role(admin, _ROLE, user=API_SERVER)
