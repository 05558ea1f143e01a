"""Verbs of the simulated API server on its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from dra_driver.sim.api_profiles import ApiProfile
from dra_driver.sim.api_rules import admit
from dra_driver.sim.api_store import Change, Object, ObjectStore, StatusError

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind of object and how its path is spelled."""

    api_version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def root(self) -> str:
        return (
            f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        )


_DRA = "resource.k8s.io/v1"
RESOURCES = (
    Resource(api_version="v1", plural="nodes", kind="Node", namespaced=False),
    Resource(api_version="v1", plural="events", kind="Event", namespaced=True),
    Resource(api_version="v1", plural="pods", kind="Pod", namespaced=True),
    Resource(api_version=_DRA, plural="deviceclasses", kind="DeviceClass", namespaced=False),
    Resource(api_version=_DRA, plural="resourceclaims", kind="ResourceClaim", namespaced=True),
    Resource(
        api_version=_DRA,
        plural="resourceclaimtemplates",
        kind="ResourceClaimTemplate",
        namespaced=True,
    ),
    Resource(api_version=_DRA, plural="resourceslices", kind="ResourceSlice", namespaced=False),
)
_IMMUTABLE = {"resourceslices": ("driver", "nodeName")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path names; without a name it is the collection."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.resource.plural, self.namespace, self.name


def find_target(path: str) -> Target | None:
    """Take a path apart; None where it names nothing that is served."""
    for resource in RESOURCES:
        if not path.startswith(f"{resource.root}/"):
            continue
        parts = path.removeprefix(f"{resource.root}/").strip("/").split("/")
        namespace = ""
        if resource.namespaced and parts[0] == "namespaces" and len(parts) > 1:
            namespace, parts = parts[1], parts[2:]
        if parts and parts[0] == resource.plural:
            name, subresource = (*parts[1:3], "", "")[:2]
            return Target(
                resource=resource, namespace=namespace, name=name, subresource=subresource
            )
    return None


class Objects:
    """Serves verbs; raises StatusError for all but success."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def get(self, target: Target) -> Object:
        return _typed(target.resource, self._store.get(target.key))

    def list(self, target: Target, query: Query) -> Object:
        items, version = self._store.list(target.resource.plural, target.namespace)
        chosen = _selector(query)
        return {
            "apiVersion": target.resource.api_version,
            "kind": f"{target.resource.kind}List",
            "metadata": {"resourceVersion": version},
            "items": [item for item in items if chosen(item)],
        }

    def create(self, target: Target, body: Object, profile: ApiProfile, query: Query) -> Object:
        body = deepcopy(body)
        admit(target.resource.plural, body, profile)
        stored = self._store.create(
            target.resource.plural, target.namespace, body, dry_run=query.get("dryRun") == "All"
        )
        return _typed(target.resource, stored)

    def replace(self, target: Target, body: Object, profile: ApiProfile) -> Object:
        def merge(stored: Object, new: Object) -> Object:
            if target.subresource == "status":
                return {**stored, "status": new.get("status") or {}}
            for field in _IMMUTABLE.get(target.resource.plural, ()):
                if (stored.get("spec") or {}).get(field) != (new.get("spec") or {}).get(field):
                    text = f"spec.{field}: Invalid value: field is immutable"
                    raise StatusError(422, "Invalid", text)
            admit(target.resource.plural, new, profile, old=stored)
            if target.resource.kind == "ResourceClaim" and "status" in stored:
                new["status"] = stored["status"]
            return new

        return _typed(target.resource, self._store.replace(target.key, body, merge=merge))

    def delete(self, target: Target, body: Object) -> Object:
        self._store.delete(target.key, body.get("preconditions"))
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}

    def delete_collection(self, target: Target, query: Query) -> Object:
        listed = self.list(target, query)
        for item in listed["items"]:
            metadata = item["metadata"]
            self._store.delete(
                (target.resource.plural, metadata.get("namespace", ""), metadata["name"])
            )
        return listed

    def watch(
        self, target: Target, query: Query, *, ended: Callable[[], bool], timeout_s: float
    ) -> Iterator[Object | None]:
        """Give events as they come; None now and then, when there is none.

        Raises:
            StatusError: 410, before the first event or later.
        """
        chosen = _selector(query)
        after = int(query.get("resourceVersion") or 0)
        if not after:
            listed = self.list(target, query)
            after = int(listed["metadata"]["resourceVersion"])
            yield from ({"type": "ADDED", "object": item} for item in listed["items"])
        while not ended():
            changes, after = self._store.changes(target.resource.plural, after, timeout_s)
            for change in changes:
                if _in_namespace(change, target) and chosen(change.object):
                    event = {"type": change.type, "object": change.object}
                    _typed(target.resource, change.object)
                    yield event
            if not changes and query.get("allowWatchBookmarks") == "true":
                yield _bookmark(target.resource, after)
            yield None


def _in_namespace(change: Change, target: Target) -> bool:
    return target.namespace in {"", change.key[1]}


def _typed(resource: Resource, stored: Object) -> Object:
    stored["apiVersion"], stored["kind"] = resource.api_version, resource.kind
    return stored


def _bookmark(resource: Resource, version: int) -> Object:
    body = _typed(resource, {"metadata": {"resourceVersion": str(version)}})
    return {"type": "BOOKMARK", "object": body}


def _selector(query: Query) -> Callable[[Object], bool]:
    terms = [term for term in query.get("fieldSelector", "").split(",") if term]
    wanted = [(path.split("."), value) for path, _, value in (t.partition("=") for t in terms)]
    return lambda item: all(_field(item, path) == value for path, value in wanted)


def _field(item: Any, path: list[str]) -> str:
    for part in path:
        item = item.get(part) if isinstance(item, dict) else None
    return "" if item is None else str(item)
