"""ResourceSlices of one driver on one node, and questions about the API server."""

from __future__ import annotations

from dra_driver.adapters.kube_transport import Stream, Transport, object_path
from dra_driver.errors import NotFound
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
        answer = self._transport.call(
            "GET",
            _SLICES,
            what=f"list {self._whose}",
            kind="ResourceSliceList",
            query=self._selector,
        )
        items = sorted(answer.get("items") or (), key=lambda item: str(item["metadata"]["name"]))
        return tuple(items), str(answer["metadata"]["resourceVersion"])

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
        return self._transport.call("POST", _SLICES, what=what, kind=_KIND, body=body)

    def replace_slice(self, name: str, body: Json) -> Json:
        return self._transport.call(
            "PUT",
            object_path(_SLICES, name),
            what=f"replace ResourceSlice {name}",
            name=name,
            kind=_KIND,
            body=body,
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
        answer = self._transport.call(
            "GET",
            object_path("/api/v1/nodes", self._node),
            what=f"get Node {self._node}",
            name=self._node,
            kind="Node",
        )
        return str(answer["metadata"]["uid"])
