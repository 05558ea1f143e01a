"""Kept connections to the API server, for the harness's own requests."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import local
from typing import Any
from urllib.parse import urlsplit

from dra_api.kubelet import dra_v1_pb2 as dra
from tests.kube.client import Client, Json

RESOURCE = "/apis/resource.k8s.io/v1"
NAMESPACE = "bench"
DRIVER = "gpuslice.io"
_COUNTER = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITERS = 4
_SHARE_MIB = 1024


class Api:
    """One identity; a connection for each thread, which stays open."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tls = ssl.create_default_context(cafile=str(client.ca_file))
        self._own = local()

    def request(self, method: str, path: str, body: Json | None = None) -> Json:
        response = self._send(method, path, body)
        text = response.read()
        if response.status >= 300:
            raise AssertionError(f"{method} {path}: {response.status} {text.decode()}")
        answer: Json = json.loads(text)
        return answer

    def raw(self, path: str) -> bytes:
        """The body of an answer, unparsed."""
        return self._send("GET", path, None).read()

    def watch(self, path: str) -> Iterator[Json]:
        """Events of a watch on a connection of its own; ends with the consumer."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers=self._headers())
            for line in connection.getresponse():
                yield json.loads(line)
        finally:
            connection.close()

    def requests_of(self, resource: str, verb: str) -> int:
        """How many requests of a kind the server has answered to anybody."""
        total = 0.0
        for line in self._client.text("/metrics").splitlines():
            found = _COUNTER.match(line)
            if found is None:
                continue
            labels = dict(_LABEL.findall(found[1]))
            if labels.get("resource") == resource and labels.get("verb") == verb:
                total += float(found[2])
        return round(total)

    def _send(self, method: str, path: str, body: Json | None) -> http.client.HTTPResponse:
        connection: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect()
        content = None if body is None else json.dumps(body)
        connection.request(method, path, body=content, headers=self._headers())
        return connection.getresponse()

    def _headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._client.token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
        }

    def _connect(self) -> http.client.HTTPSConnection:
        parts = urlsplit(self._client.url)
        return http.client.HTTPSConnection(
            str(parts.hostname), parts.port, context=self._tls, timeout=60
        )


def create_claims(api: Api, bodies: list[Json]) -> list[Json]:
    """Create claims and give each its allocation, as the scheduler does: in its status."""
    collection = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaims"

    def create(body: Json) -> Json:
        stored = api.request("POST", collection, body)
        path = f"{collection}/{stored['metadata']['name']}/status"
        return api.request("PUT", path, stored | {"status": body["status"]})

    with ThreadPoolExecutor(_WRITERS) as pool:
        return list(pool.map(create, bodies))


def claim_body(name: str, *, kind: str, result: Json) -> Json:
    """An allocated claim of one device; `kind` is the class without the driver's name."""
    consumed = result.get("consumedCapacity", {})
    asked = {key: value for key, value in consumed.items() if key != "shares"}
    exactly: dict[str, Any] = {"deviceClassName": f"{kind}.{DRIVER}"}
    if kind == "slice":
        exactly["capacity"] = {"requests": asked}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        "status": {
            "allocation": {
                "devices": {"results": [result | {"request": "gpu", "driver": DRIVER}]},
            }
        },
    }


def all_of(device: Json) -> Json:
    """The result of an allocation that takes a device as a whole."""
    result: Json = {"pool": "", "device": device["name"]}
    if device.get("allowMultipleAllocations"):
        memory = device["capacity"]["memory"]["value"]
        result["shareID"] = _share_id(0)
        result["consumedCapacity"] = {"compute": "100", "memory": memory, "shares": "1"}
    return result


def share_of(device: Json, number: int) -> Json:
    """The result of an allocation of a small share; `number` tells shares of a device apart."""
    return {
        "pool": "",
        "device": device["name"],
        "shareID": _share_id(number),
        "consumedCapacity": {"compute": "1", "memory": f"{_SHARE_MIB}Mi", "shares": "1"},
    }


def named(claim: Json) -> dra.Claim:
    """A stored claim as the kubelet names it."""
    metadata = claim["metadata"]
    return dra.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])


def _share_id(number: int) -> str:
    return f"{number:08x}-0000-4000-a000-{number:012x}"
