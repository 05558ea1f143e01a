"""The API server contract on a real kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.ports import Json
from tests.contract.kube_suite import KubeContract, ServerUnderTest
from tests.kube.harness import ApiServer


@pytest.fixture
def server(api_default: ApiServer) -> ServerUnderTest:
    return ServerUnderTest(kubeconfig=api_default.kubeconfig, admin=admin_of(api_default))


class TestKubeApiServer(KubeContract):
    pass


def admin_of(server: ApiServer) -> Any:
    def request(method: str, path: str, body: Json | None) -> Any:
        path, _, query = path.partition("?")
        asked = dict(part.split("=", 1) for part in query.split("&") if part)
        return server.admin.request(
            method, path, body=None if body is None else dict(body), query=asked
        )

    return request
