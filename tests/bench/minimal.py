"""The least driver that Python and grpcio allow, to tell the interpreter's cost from gpuslice's.

It does what the Go reference does for a claim, and nothing else: no locks, no checks, no recovery,
no health, no metrics, no slices. It is what the benchmark compares with, no driver for use.
"""

# ruff: noqa: PTH108 - the least is what the system calls take

from __future__ import annotations

import argparse
import http.client
import json
import os
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any
from urllib.parse import urlsplit

import grpc
import yaml

from dra_api.kubelet import dra_v1_pb2 as dra
from dra_api.kubelet import dra_v1_pb2_grpc as dra_grpc
from dra_api.kubelet import pluginregistration_v1_pb2 as registration
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as registration_grpc
from tests.bench.floor import sync, write_durably

_WORKERS = 16


class Api:
    """GETs of claims over a kept connection for each thread."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self._address = urlsplit(cluster["server"])
        self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._headers = {
            "Authorization": f"Bearer {user['token']}",
            "Accept": "application/json",
        }
        self._own = local()

    def claim(self, namespace: str, name: str) -> Any:
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = http.client.HTTPSConnection(
                str(self._address.hostname), self._address.port, context=self._tls
            )
        path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        connection.request("GET", path, headers=self._headers)
        return json.loads(connection.getresponse().read())


class Plugin(dra_grpc.DRAPluginServicer, registration_grpc.RegistrationServicer):
    """Both services of a driver."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._driver: str = given.driver_name
        self._cdi: Path = given.cdi_root
        self._state: Path = given.state_dir
        self._api = Api(given.kubeconfig)
        self.socket: Path = given.plugins / "dra.sock"
        for folder in (self._cdi, self._state, given.plugins):
            folder.mkdir(parents=True, exist_ok=True)

    def GetInfo(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return registration.PluginInfo(
            type="DRAPlugin",
            name=self._driver,
            endpoint=str(self.socket),
            supported_versions=["v1.DRAPlugin"],
        )

    def NotifyRegistrationStatus(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return registration.RegistrationStatusResponse()

    def NodePrepareResources(self, request: Any, _context: Any) -> Any:  # noqa: N802
        answer = dra.NodePrepareResourcesResponse()
        for claim in request.claims:
            devices = self._prepare(self._api.claim(claim.namespace, claim.name))
            answer.claims[claim.uid].devices.extend(devices)
        return answer

    def NodeUnprepareResources(self, request: Any, _context: Any) -> Any:  # noqa: N802
        answer = dra.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            for folder in (self._cdi, self._state):
                os.unlink(folder / claim.uid)
                sync(folder)
            answer.claims[claim.uid].SetInParent()
        return answer

    def _prepare(self, claim: Any) -> list[dra.Device]:
        uid = claim["metadata"]["uid"]
        devices = [
            dra.Device(
                request_names=[each["request"]],
                pool_name=each["pool"],
                device_name=each["device"],
                cdi_device_ids=[f"k8s.{self._driver}/claim={uid}-{each['device']}"],
            )
            for each in claim["status"]["allocation"]["devices"]["results"]
        ]
        for folder in (self._cdi, self._state):
            write_durably(folder, uid)
        return devices


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("kubeconfig", "cdi-root", "state-dir", "registry", "plugins"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--node-name", required=True)
    parser.add_argument("--driver-name", required=True)
    given = parser.parse_args()
    plugin = Plugin(given)
    server = grpc.server(ThreadPoolExecutor(_WORKERS))
    dra_grpc.add_DRAPluginServicer_to_server(plugin, server)
    registration_grpc.add_RegistrationServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{plugin.socket}")
    server.add_insecure_port(f"unix:{given.registry / 'minimal-reg.sock'}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
