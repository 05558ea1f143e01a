"""What an API server keeps: a dry run of a tiny ResourceSlice for each feature.

A server whose feature gate is off drops the feature's fields in silence, and gates are switched by
hand on versions where they are off by default; so neither the version alone nor an error can tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Any

from dra_driver.model.capability import ApiCapability
from dra_driver.plan.reconcile import dropped_fields
from dra_driver.plan.slice_json import API_VERSION, KIND, Json

OLDEST_VERSION = (1, 34)
"""The first Kubernetes version that serves resource.k8s.io/v1."""


class Feature(StrEnum):
    """Features that are probed, by the name of their gate."""

    CONSUMABLE = "DRAConsumableCapacity"
    TAINTS = "DRADeviceTaints"


_DEVICES: dict[Feature, dict[str, Any]] = {
    Feature.CONSUMABLE: {
        "name": "probe",
        "allowMultipleAllocations": True,
        "capacity": {
            "shares": {
                "value": "2",
                "requestPolicy": {
                    "default": "1",
                    "validRange": {"min": "1", "max": "2", "step": "1"},
                },
            }
        },
    },
    Feature.TAINTS: {
        "name": "probe",
        "taints": [{"key": "probe", "value": "probe", "effect": "NoSchedule"}],
    },
}
_VERSION = re.compile(r"^v?(\d{1,9})\.(\d{1,9})", re.ASCII)


def probe_body(feature: Feature, *, driver: str, node: str) -> dict[str, Any]:
    """A ResourceSlice for a dry run; it names the node, as admission policies may ask for that."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"generateName": f"probe-{driver}-"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [deepcopy(_DEVICES[feature])],
        },
    }


def capability_from(version: Json, answers: Mapping[Feature, Json | None]) -> ApiCapability:
    """Judge an API server.

    Args:
        version: the body of /version.
        answers: what the server would store for `probe_body` of each feature; None where it
            refuses. A feature without an answer is not there.
    """
    major, minor = server_version(version)
    return ApiCapability(
        major=major,
        minor=minor,
        git_version=str(version.get("gitVersion", "")),
        consumable=_kept(Feature.CONSUMABLE, answers),
        taints=_kept(Feature.TAINTS, answers),
    )


def server_version(version: Json) -> tuple[int, int]:
    """Major and minor number; (0, 0) where the server spells them in no known way."""
    match = _VERSION.match(str(version.get("gitVersion", "")))
    spelled = match.groups() if match else (version.get("major", ""), version.get("minor", ""))
    major, minor = (re.match(r"\d{1,9}", str(number), re.ASCII) for number in spelled)
    return (int(major.group()), int(minor.group())) if major and minor else (0, 0)


def _kept(feature: Feature, answers: Mapping[Feature, Json | None]) -> bool:
    stored = answers.get(feature)
    sent = {"devices": [_DEVICES[feature]]}
    return stored is not None and not dropped_fields(
        sent, {"devices": (stored.get("spec") or {}).get("devices")}
    )
