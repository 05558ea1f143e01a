"""The plugin's own identity at a server, with the rights and limits that the manifests give it."""

from __future__ import annotations

import itertools

from tests import manifests
from tests.kube.client import ApiError, Client, Json
from tests.kube.harness import ApiServer
from tests.kube.objects import create_node, service_account_token, wait_for_rights
from tests.kube.process import wait_until
from tests.manifests import Document, of_kind

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NEEDED = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
)
_numbers = itertools.count(1)


def plugin_token(
    server: ApiServer, *, node: str | None, documents: tuple[Document, ...] | None = None
) -> str:
    """Apply what is shipped for the plugin, and give a token of its ServiceAccount.

    Rights and policy work on return.

    Args:
        server: where.
        node: that the token is bound to, as that of a pod is.
        documents: of a build; default: those of base as they are.
    """
    admin = server.admin
    wanted = manifests.base() if documents is None else documents
    for kind in NEEDED:
        for document in of_kind(kind, wanted):
            admin.apply(document)
    (account,) = of_kind("ServiceAccount", wanted)
    name, namespace = account["metadata"]["name"], account["metadata"]["namespace"]
    (role,) = of_kind("ClusterRole", wanted)
    wait_for_rights(admin, rules=role["rules"], namespace=namespace, service_account=name)
    token = service_account_token(admin, namespace=namespace, name=name, node=node)
    _wait_for_policy(server.client(token))
    return token


def new_node(server: ApiServer) -> str:
    name = f"policy-{next(_numbers)}"
    create_node(server.admin, name)
    return name


def slice_of(node: str, **spec: object) -> Json:
    """Give a ResourceSlice as the plugin of a node publishes it; ``spec`` replaces fields."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"{node}-"},
        "spec": {
            "driver": "gpuslice.io",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
            **spec,
        },
    }


def _wait_for_policy(plugin: Client) -> None:
    """The server learns of policies through a watch, a moment after they are stored."""

    def problem() -> str:
        try:
            plugin.create(SLICES, slice_of("no-node-of-anybody"), dryRun="All")
        except ApiError as error:
            return "" if "gpuslice-own-node" in error.message else str(error)
        return "it lets a slice of another node pass"

    wait_until(problem, waiting_for="the policy on ResourceSlices")
