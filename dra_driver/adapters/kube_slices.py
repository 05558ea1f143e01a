"""ResourceSlices of one driver on one node, and questions about the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.adapters.kube_transport import Stream, Transport, object_path
from dra_driver.errors import AdapterError, NotFound
from dra_driver.ports import Json

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_KIND = "ResourceSlice"


class KubeSlices:
    """Implements SliceApi."""

    def __init__(self, transport: Transport, *, driver: str, node: str) -> None:
        self._transport = transport
        self._selector = {"fieldSelector": f"spec.driver={driver},spec.nodeName={node}"}
        self._whose = f"ResourceSlices of {driver} on {node}"

    def list_slices(self) -> tuple[tuple[Json, ...], str]:
        what = f"list {self._whose}"
        answer = self._transport.call(
            "GET", _SLICES, what=what, kind="ResourceSliceList", query=self._selector
        )
        found = answer.get("items") or []
        items = [_slice(item, what) for item in (found if isinstance(found, list) else (found,))]
        items.sort(key=lambda item: str(item["metadata"]["name"]))
        return tuple(items), _metadata(answer, "resourceVersion", what)

    def watch_slices(self, resource_version: str, timeout_s: float) -> Stream:
        query = {
            **self._selector,
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
        }
        return self._transport.watch(
            _SLICES, what=f"watch {self._whose}", query=query, timeout_s=timeout_s
        )

    def create_slice(self, body: Json) -> Json:
        what = f"create a slice among the {self._whose}"
        return _slice(self._transport.call("POST", _SLICES, what=what, kind=_KIND, body=body), what)

    def replace_slice(self, name: str, body: Json) -> Json:
        what = f"replace ResourceSlice {name}"
        path = object_path(_SLICES, name)
        return _slice(
            self._transport.call("PUT", path, what=what, name=name, kind=_KIND, body=body), what
        )

    def delete_slice(self, name: str, *, uid: str, resource_version: str) -> None:
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        try:
            self._transport.call(
                "DELETE",
                object_path(_SLICES, name),
                what=f"delete ResourceSlice {name}",
                name=name,
                body={
                    "apiVersion": "v1",
                    "kind": "DeleteOptions",
                    "preconditions": preconditions,
                },
            )
        except NotFound:
            return


class KubeProbe:
    """Implements ApiProbe."""

    def __init__(self, transport: Transport, *, node: str) -> None:
        self._transport = transport
        self._node = node

    def server_version(self) -> Json:
        return self._transport.call("GET", "/version", what="get the version")

    def dry_run_slice(self, body: Json) -> Json:
        return self._transport.call(
            "POST",
            _SLICES,
            what="try a ResourceSlice",
            kind=_KIND,
            query={"dryRun": "All", "fieldValidation": "Strict"},
            body=body,
        )

    def node_uid(self) -> str:
        what = f"get Node {self._node}"
        path = object_path("/api/v1/nodes", self._node)
        answer = self._transport.call("GET", path, what=what, name=self._node, kind="Node")
        return _metadata(answer, "uid", what)


def _slice(answer: Any, what: str) -> Json:
    """Check what all readers rely on: something between here and the server may answer anything."""
    if isinstance(answer, Mapping):
        for field in ("name", "uid", "resourceVersion"):
            _metadata(answer, field, what)
        spec = answer.get("spec")
        if isinstance(spec, Mapping) and _is_pool(spec.get("pool")) and _are_devices(spec):
            return answer
    raise _unexpected(what, "is no ResourceSlice")


def _is_pool(pool: Any) -> bool:
    return isinstance(pool, Mapping) and isinstance(pool.get("generation") or 0, int)


def _are_devices(spec: Json) -> bool:
    devices = spec.get("devices") or []
    return isinstance(devices, list) and all(
        isinstance(device, Mapping) and isinstance(device.get("name"), str) for device in devices
    )


def _metadata(answer: Json, field: str, what: str) -> str:
    metadata = answer.get("metadata")
    value = metadata.get(field) if isinstance(metadata, Mapping) else None
    if not isinstance(value, str) or not value:
        raise _unexpected(what, f"has no metadata.{field}")
    return value


def _unexpected(what: str, problem: str) -> AdapterError:
    return AdapterError(
        f"{what}: the answer {problem}; check that the address is an API server's and what stands "
        "in between"
    )
