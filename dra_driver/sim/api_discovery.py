"""What clients ask before anything else: which APIs and kinds there are."""

from __future__ import annotations

from dra_driver.sim.api_resources import RESOURCES
from dra_driver.sim.api_store import Object

_VERBS = ["create", "delete", "deletecollection", "get", "list", "update", "watch"]


def discovery(path: str) -> Object | None:
    """The document at a discovery path; None where it is no such path."""
    versions = {resource.api_version for resource in RESOURCES}
    groups = sorted(version for version in versions if "/" in version)
    parts = tuple(part for part in path.split("/") if part)
    match parts:
        case ("api",):
            return {"kind": "APIVersions", "versions": sorted(versions - set(groups))}
        case ("apis",):
            listed = [_group(version) for version in groups]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ("api", version) if version in versions:
            return _resources(version)
        case ("apis", group, version) if f"{group}/{version}" in versions:
            return _resources(f"{group}/{version}")
        case _:
            return None


def _group(version: str) -> Object:
    entry = {"groupVersion": version, "version": version.partition("/")[2]}
    return {"name": version.partition("/")[0], "versions": [entry], "preferredVersion": entry}


def _resources(version: str) -> Object:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version,
        "resources": [
            {
                "name": resource.plural,
                "singularName": resource.kind.lower(),
                "kind": resource.kind,
                "namespaced": resource.namespaced,
                "verbs": _VERBS,
            }
            for resource in RESOURCES
            if resource.api_version == version
        ],
    }
