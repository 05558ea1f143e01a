"""Pools as the JSON of resource.k8s.io/v1, and what is the same for the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.model.pool import AttributeValue, Capacity, Device, Pool, Taint, Version
from dra_driver.model.quantity import format_bytes, parse_quantity
from dra_driver.plan.devices import MEMORY

API_VERSION = "resource.k8s.io/v1"
KIND = "ResourceSlice"

Json = Mapping[str, Any]

_POLICY_NUMBERS = ("default",)
_RANGE_NUMBERS = ("min", "max", "step")
_SERVER_OWNED = frozenset({"timeAdded"})


def slice_specs(pool: Pool) -> tuple[dict[str, Any], ...]:
    """Give the specs of a pool's ResourceSlices, in order.

    `pool.generation` is left out: it depends on what is published already.
    """
    return tuple(_spec(pool, devices) for devices in pool.slices)


def same_spec(desired: Json, stored: Json) -> bool:
    """Whether a stored spec says what is desired.

    Quantities are compared as numbers. `pool.generation` and times of taints are not compared, nor
    are fields that this driver does not know in objects that it does: a newer server may have
    filled them in, and writing them back and forth would never end.
    """
    return canonical_spec(desired) == canonical_spec(stored)


def canonical_spec(spec: Json) -> dict[str, Any]:
    """Reduce a spec to what this driver can say about it, with quantities as numbers."""
    pool = spec.get("pool") or {}
    return {
        "driver": spec.get("driver"),
        "nodeName": spec.get("nodeName"),
        "nodeSelector": spec.get("nodeSelector"),
        "allNodes": bool(spec.get("allNodes")),
        "perDeviceNodeSelection": bool(spec.get("perDeviceNodeSelection")),
        "sharedCounters": spec.get("sharedCounters") or [],
        "pool": (pool.get("name"), pool.get("resourceSliceCount")),
        "devices": [_canonical_device(device) for device in spec.get("devices") or ()],
    }


def canonical_taint(taint: Json) -> dict[str, Any]:
    """Give a taint without what the server adds to it."""
    return {key: value for key, value in taint.items() if key not in _SERVER_OWNED and value}


def _spec(pool: Pool, devices: tuple[Device, ...]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "driver": pool.driver,
        "nodeName": pool.name,
        "pool": {"name": pool.name, "resourceSliceCount": len(pool.slices)},
    }
    if devices:
        spec["devices"] = [_device(device) for device in devices]
    return spec


def _device(device: Device) -> dict[str, Any]:
    # Empty lists and maps are left out: the server leaves them out too, or refuses them.
    body: dict[str, Any] = {
        "name": device.name,
        "attributes": {name: _attribute(value) for name, value in device.attributes},
    }
    if device.capacity:
        body["capacity"] = {name: _capacity(name, value) for name, value in device.capacity}
    if device.shareable:
        body["allowMultipleAllocations"] = True
    if device.taints:
        body["taints"] = [_taint(taint) for taint in device.taints]
    return body


def _attribute(value: AttributeValue) -> dict[str, Any]:
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case str():
            return {"string": value}
        case Version(text=text):
            return {"version": text}


def _capacity(name: str, capacity: Capacity) -> dict[str, Any]:
    spell = format_bytes if name == MEMORY else str
    body: dict[str, Any] = {"value": spell(capacity.value)}
    if (policy := capacity.policy) is not None:
        body["requestPolicy"] = {
            "default": spell(policy.default),
            "validRange": {
                "min": spell(policy.minimum),
                "max": spell(policy.maximum),
                "step": spell(policy.step),
            },
        }
    return body


def _taint(taint: Taint) -> dict[str, Any]:
    return {"key": taint.key, "value": taint.value, "effect": str(taint.effect)}


def _canonical_device(device: Json) -> dict[str, Any]:
    capacity = device.get("capacity") or {}
    return {
        "name": device.get("name"),
        "attributes": dict(device.get("attributes") or {}),
        "capacity": {name: _canonical_capacity(body) for name, body in capacity.items()},
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
        "taints": [canonical_taint(taint) for taint in device.get("taints") or ()],
        "consumesCounters": device.get("consumesCounters") or [],
        "bindsToNode": bool(device.get("bindsToNode")),
        "bindingConditions": device.get("bindingConditions") or [],
    }


def _canonical_capacity(body: Json) -> dict[str, Any]:
    canonical = {"value": _number(body.get("value"))}
    policy = body.get("requestPolicy") or {}
    canonical |= {name: _number(policy.get(name)) for name in _POLICY_NUMBERS}
    valid_range = policy.get("validRange") or {}
    canonical |= {name: _number(valid_range.get(name)) for name in _RANGE_NUMBERS}
    canonical["validValues"] = [_number(value) for value in policy.get("validValues") or ()]
    return canonical


def _number(value: Any) -> Any:
    # The server stores what it accepted, so what is no quantity here can only differ from ours.
    try:
        return None if value is None else parse_quantity(str(value))
    except ValueError:
        return value
