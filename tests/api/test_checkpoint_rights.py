"""The rights that checkpoints take, as real API servers understand the shipped roles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dra_driver.adapters.kube_caller import CallerApi, connect_caller
from dra_driver.adapters.kube_exec import PodAddress
from dra_driver.errors import AdapterError, Forbidden, NotFound
from dra_driver.plan.kubelet_answers import Asked, NotTaken, judge_answer
from tests import manifests
from tests.api.plugin_identity import plugin_token
from tests.kube.client import Json
from tests.kube.harness import ApiServer
from tests.kube.objects import (
    create_node,
    create_service_account,
    service_account_token,
    wait_for_rights,
)
from tests.kube.process import wait_until
from tests.manifests import FOLDER, Document, of_kind

GROUP = "rbac.authorization.k8s.io"
RIGHTS = manifests.read(FOLDER / "components/checkpoint-rights/rights.yaml")
NAMESPACE = "gpuslice"
POD = PodAddress(namespace=NAMESPACE, name="gpuslice-plugin-x", container="plugin")

_numbers = itertools.count(1)


@pytest.fixture
def server(api_gates: ApiServer) -> ApiServer:
    plugin_token(api_gates, node=None)
    for document in RIGHTS:
        api_gates.admin.apply(document)
    return api_gates


class Person:
    """Somebody with an account of their own, and no rights at first."""

    def __init__(self, server: ApiServer) -> None:
        self.name = f"person-{next(_numbers)}"
        self._server = server
        create_service_account(server.admin, namespace=NAMESPACE, name=self.name)

    def bind(self, kind: str, name: str) -> None:
        """Grant what a shipped role has, and wait until it works."""
        (role,) = (each for each in of_kind(kind, RIGHTS) if each["metadata"]["name"] == name)
        binding: Document = {
            "apiVersion": f"{GROUP}/v1",
            "kind": f"{kind}Binding",
            "metadata": {"name": f"{name}-{self.name}"},
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": NAMESPACE}],
        }
        if kind == "Role":
            binding["metadata"]["namespace"] = NAMESPACE
        self._server.admin.apply(binding)
        if kind == "ClusterRole":
            wait_for_rights(
                self._server.admin,
                rules=role["rules"],
                namespace=NAMESPACE,
                service_account=self.name,
            )

    @contextmanager
    def api(self) -> Iterator[CallerApi]:
        token = service_account_token(self._server.admin, namespace=NAMESPACE, name=self.name)
        api = connect_caller(kubeconfig=self._server.write_kubeconfig(self.name, token=token))
        yield api
        api.close()


def test_person_asks_kubelets_by_the_shipped_role_alone(server: ApiServer) -> None:
    person, node = Person(server), f"node-{next(_numbers)}"
    create_node(server.admin, node)
    asked = Asked(node=node, namespace="default", pod="pod", container="main", timeout_s=5)

    def judged(api: CallerApi) -> Any:
        given = {"namespace": "default", "pod": "pod", "container": "main", "timeout_s": 5}
        return judge_answer(asked, *api.checkpoint(node, **given))  # type: ignore[arg-type]

    with person.api() as api:
        refused = judged(api)
        assert isinstance(refused, NotTaken)
        assert not refused.tried
        assert "gpuslice-checkpointer" in refused.text
        with pytest.raises(Forbidden):
            api.pod("default", "pod")
        person.bind("ClusterRole", "gpuslice-checkpointer")
        # The node has no kubelet: the API server did send it there.
        assert judged(api).tried
        with pytest.raises(NotFound):
            api.pod("default", "pod")


def test_person_runs_commands_in_the_plugins_pods_by_the_shipped_role_alone(
    server: ApiServer,
) -> None:
    person = Person(server)
    with person.api() as api:
        with pytest.raises(Forbidden):
            api.exec.run(POD, ("true",), silence_s=5.0)
        with pytest.raises(Forbidden):
            api.pods(NAMESPACE, labels="a=b")
        person.bind("Role", "gpuslice-plugin-exec")
        wait_until(lambda: _forbidden(api), waiting_for="the rights")
        with pytest.raises(NotFound):
            api.exec.run(POD, ("true",), silence_s=5.0)
        assert api.pods(NAMESPACE, labels="a=b") == ()
        with pytest.raises(Forbidden):
            api.exec.run(
                PodAddress(namespace="default", name="pod", container="main"),
                ("true",),
                silence_s=5.0,
            )


@pytest.mark.parametrize("resource", ["checkpoint", "proxy"])
def test_plugin_may_ask_no_kubelet(server: ApiServer, resource: str) -> None:
    assert not _may(server, f"system:serviceaccount:{NAMESPACE}:gpuslice-plugin", resource)


def test_api_server_may_checkpoint_by_the_shipped_binding(server: ApiServer) -> None:
    (binding,) = of_kind("ClusterRoleBinding", RIGHTS)
    (subject,) = binding["subjects"]
    wait_until(
        lambda: "" if _may(server, subject["name"], "checkpoint") else "not yet",
        waiting_for="the rights",
    )
    assert not _may(server, subject["name"], "proxy")


def _forbidden(api: CallerApi) -> str:
    try:
        api.exec.run(POD, ("true",), silence_s=5.0)
    except Forbidden as error:
        return str(error)
    except AdapterError:
        return ""
    return ""


def _may(server: ApiServer, user: str, subresource: str) -> bool:
    attributes = {"verb": "create", "resource": "nodes", "subresource": subresource}
    review: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = server.admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
