"""Objects that tests of the driver need around them: nodes, namespaces, identities, rights."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tests.kube.client import Client, Json
from tests.kube.process import wait_until


def create_node(admin: Client, name: str) -> Json:
    """Create a Node without a kubelet; answers the stored object, whose UID slices refer to."""
    labels = {"kubernetes.io/hostname": name}
    return admin.create("/api/v1/nodes", _named("v1", "Node", name=name, labels=labels))


def create_namespace(admin: Client, name: str) -> Json:
    return admin.create("/api/v1/namespaces", _named("v1", "Namespace", name=name))


def create_service_account(admin: Client, *, namespace: str, name: str) -> Json:
    return admin.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts",
        _named("v1", "ServiceAccount", name=name),
    )


def service_account_token(
    admin: Client, *, namespace: str, name: str, node: str | None = None
) -> str:
    """Ask for an hour's token of an existing ServiceAccount.

    With ``node`` it is bound to that existing Node and names it, as the token in a pod on it does
    (``authentication.kubernetes.io/node-name``), which policies on ResourceSlices compare.
    """
    spec: Json = {"audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600}
    if node is not None:
        uid = admin.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    answer = admin.create(
        f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
    )
    return str(answer["status"]["token"])


def grant_cluster_role(
    admin: Client, *, name: str, rules: Sequence[Json], namespace: str, service_account: str
) -> None:
    """Apply a ClusterRole and its binding to one ServiceAccount, both called ``name``.

    The rights work on return.
    """
    group = "rbac.authorization.k8s.io"
    admin.apply({**_named(f"{group}/v1", "ClusterRole", name=name), "rules": list(rules)})
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": namespace}
    admin.apply(
        {
            **_named(f"{group}/v1", "ClusterRoleBinding", name=name),
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        }
    )
    wait_for_rights(admin, rules=rules, namespace=namespace, service_account=service_account)


def bind_cluster_role(admin: Client, role: str, *, user: str) -> None:
    """Give a user the rights of a ClusterRole; they work some moments later."""
    group = "rbac.authorization.k8s.io"
    admin.apply(
        {
            **_named(f"{group}/v1", "ClusterRoleBinding", name=f"{role}-{user}"),
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
    )


def wait_for_rights(
    admin: Client, *, rules: Sequence[Json], namespace: str, service_account: str
) -> None:
    """Wait until a ServiceAccount may do all that the rules say, in all namespaces.

    The authorizer learns of roles and bindings through a watch, a moment after they are stored.
    """
    user = f"system:serviceaccount:{namespace}:{service_account}"
    wait_until(
        lambda: next(_missing_rights(admin, rules=rules, user=user), ""),
        waiting_for=f"the rights of {user}",
    )


def _missing_rights(admin: Client, *, rules: Iterable[Json], user: str) -> Iterator[str]:
    for rule in rules:
        for group, resource, verb, name in itertools.product(
            rule.get("apiGroups", ()),
            rule.get("resources", ()),
            rule["verbs"],
            rule.get("resourceNames", ("",)),
        ):
            kind, _, subresource = resource.partition("/")
            attributes = {"group": group, "resource": kind, "subresource": subresource}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": user,
                    "resourceAttributes": {**attributes, "verb": verb, "name": name},
                },
            }
            path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
            if not admin.create(path, review)["status"]["allowed"]:
                yield f"may not {verb} {resource}.{group} {name}"


def _named(version: str, kind: str, *, name: str, labels: dict[str, str] | None = None) -> Json:
    metadata: Json = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": version, "kind": kind, "metadata": metadata}
