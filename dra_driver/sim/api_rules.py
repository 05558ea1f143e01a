"""What an API server does to an object before it stores it: drops, checks, spells.

A subset of k8s.io/kubernetes/pkg/apis/resource/validation, of what this driver could get wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from dra_driver.model.quantity import parse_quantity
from dra_driver.sim.api_profiles import CONSUMABLE, TAINTS, ApiProfile
from dra_driver.sim.api_store import Object, StatusError

_SEMVER = re.compile(
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?$"
)
_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
_QUALIFIED = re.compile(r"^([a-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}$")
_LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")
_TEXT_MAX_BYTES = 64
_KEYS_MAX = 32
_TAINTS_MAX = {34: 4}
_SLICE_DEVICES = 128
_SLICE_DEVICES_TAINTED = 64
_TYPES: dict[str, type | tuple[type, ...]] = {
    "bool": bool,
    "int": int,
    "string": str,
    "version": str,
}
_DECIMAL = ((18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""), (-3, "m"))
_BINARY = ((60, "Ei"), (50, "Pi"), (40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki"))
_BINARY_FROM = 1024


def admit(resource: str, body: Object, profile: ApiProfile, *, old: Object | None = None) -> None:
    """Drop what gates forbid, refuse what is invalid, and spell quantities canonically; in place.

    A field that the stored object `old` uses already is kept.

    Raises:
        StatusError: 422, with all that is wrong.
    """
    if resource == "resourceslices":
        _drop(body, profile, old)
        if problems := list(slice_problems(body, profile)):
            name = body.get("metadata", {}).get("name", "")
            text = f'ResourceSlice.resource.k8s.io "{name}" is invalid: [{", ".join(problems)}]'
            raise StatusError(422, "Invalid", text, details={"kind": "ResourceSlice"})
    if resource == "resourceclaims" and CONSUMABLE not in profile.gates:
        for request in _requests(body):
            request.pop("capacity", None)
    _spell(body)


def slice_problems(body: Object, profile: ApiProfile) -> Iterator[str]:
    """What the server would refuse of a ResourceSlice."""
    spec = body.get("spec") or {}
    pool = spec.get("pool") or {}
    if not spec.get("driver") or not spec.get("nodeName") or not pool.get("name"):
        yield "spec: Required value: driver, nodeName and pool.name"
    if int(pool.get("resourceSliceCount") or 0) < 1:
        yield "spec.pool.resourceSliceCount: must be greater than zero"
    devices = spec.get("devices") or []
    tainted = any(device.get("taints") for device in devices)
    most = _SLICE_DEVICES_TAINTED if tainted and profile.minor > min(_TAINTS_MAX) else 128
    if len(devices) > most:
        yield f"spec.devices: Too many: {len(devices)}: must have at most {most} items"
    names = [device.get("name") for device in devices]
    if len(set(names)) < len(names):
        yield "spec.devices: Duplicate value"
    for index, device in enumerate(devices):
        for problem in _device_problems(device, profile):
            yield f"spec.devices[{index}].{problem}"


def canonical_quantity(text: str) -> str:
    """Spell a quantity as the API server stores it: "81920Mi" → "80Gi", "1000" → "1k"."""
    value = parse_quantity(text)
    if text.endswith("i") and abs(value) >= _BINARY_FROM:
        for power, suffix in _BINARY:
            factor = Decimal(1 << power)
            if value % factor == 0:
                return f"{int(value / factor)}{suffix}"
    for exponent, suffix in _DECIMAL:
        scaled = value.scaleb(-exponent)
        if value and scaled == scaled.to_integral_value():
            return f"{int(scaled)}{suffix}"
    return "0" if not value else str(value)


def _device_problems(device: Object, profile: ApiProfile) -> Iterator[str]:
    if not _DNS_LABEL.match(str(device.get("name"))):
        yield f"name: Invalid value: {device.get('name')!r}"
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if len(attributes) + len(capacity) > _KEYS_MAX:
        yield f"attributes: Too many: must have at most {_KEYS_MAX} with capacity"
    for name in (str(key) for key in (*attributes, *capacity)):
        if not _QUALIFIED.match(name):
            yield f"Invalid value: {name!r}: must be a qualified name"
    for name, value in attributes.items():
        yield from (f"attributes[{name}]: {text}" for text in _attribute_problems(value))
    shareable = bool(device.get("allowMultipleAllocations"))
    for name, value in capacity.items():
        yield from (f"capacity[{name}]: {text}" for text in _capacity_problems(value, shareable))
    yield from _taint_problems(device.get("taints") or [], profile)


def _attribute_problems(value: Object) -> Iterator[str]:
    if len(value) != 1 or not set(value) <= set(_TYPES):
        yield "Invalid value: exactly one value must be specified"
        return
    ((kind, content),) = value.items()
    if not isinstance(content, _TYPES[kind]):
        yield f"Invalid value: must be a {kind}"
    elif isinstance(content, str) and len(content.encode()) > _TEXT_MAX_BYTES:
        yield f"Too long: may not be more than {_TEXT_MAX_BYTES} bytes"
    elif kind == "version" and not _SEMVER.match(str(content)):
        yield f"Invalid value: {content!r}: must be a string compatible with semver.org spec 2.0.0"


def _capacity_problems(capacity: Object, shareable: bool) -> Iterator[str]:  # noqa: FBT001 - private
    try:
        value = parse_quantity(capacity["value"])
        policy = capacity.get("requestPolicy")
        if policy is None:
            return
        if not shareable:
            yield "requestPolicy: Forbidden: needs allowMultipleAllocations"
        default = parse_quantity(policy["default"])
        low, high, step = (
            parse_quantity(policy["validRange"][key]) for key in ("min", "max", "step")
        )
    except (KeyError, ValueError) as error:
        yield f"Invalid value: {error}"
        return
    if not 0 <= low <= default <= high <= value:
        yield "validRange: Invalid value: 0 <= min <= default <= max <= value does not hold"
    if step <= 0:
        yield "validRange.step: Invalid value: must be greater than zero"
    elif (default - low) % step or (high - low) % step or low + step > value:
        yield "validRange: Invalid value: not a multiple of step above min"


def _taint_problems(taints: list[Object], profile: ApiProfile) -> Iterator[str]:
    most = _TAINTS_MAX.get(profile.minor, 16)
    if len(taints) > most:
        yield f"taints: Too many: must have at most {most} items"
    effects = {"NoSchedule", "NoExecute"} | (
        {"None"} if profile.minor > min(_TAINTS_MAX) else set()
    )
    for taint in taints:
        if taint.get("effect") not in effects:
            yield f"taints: Unsupported value: {taint.get('effect')!r}"
        if not taint.get("key") or not _LABEL_VALUE.match(taint.get("value", "")):
            yield f"taints: Invalid value: {taint}"


def _drop(body: Object, profile: ApiProfile, old: Object | None) -> None:
    devices = (body.get("spec") or {}).get("devices") or []
    before = ((old or {}).get("spec") or {}).get("devices") or []
    if CONSUMABLE not in profile.gates and not any(map(_consumable, before)):
        for device in devices:
            device.pop("allowMultipleAllocations", None)
            for capacity in (device.get("capacity") or {}).values():
                capacity.pop("requestPolicy", None)
    if TAINTS not in profile.gates and not any(device.get("taints") for device in before):
        for device in devices:
            device.pop("taints", None)


def _consumable(device: Mapping[str, Any]) -> bool:
    capacities = (device.get("capacity") or {}).values()
    return bool(device.get("allowMultipleAllocations")) or any(
        capacity.get("requestPolicy") for capacity in capacities
    )


def _requests(body: Object) -> Iterator[Object]:
    for request in ((body.get("spec") or {}).get("devices") or {}).get("requests") or ():
        yield from (request.get("exactly") or {}, *(request.get("firstAvailable") or ()))


def _spell(node: Any, *, quantity: bool = False) -> Any:
    """Spell quantities below `capacity` and `consumedCapacity`, wherever they are."""
    if isinstance(node, dict):
        for key, value in node.items():
            below = quantity or key in {"capacity", "consumedCapacity"}
            node[key] = _spell(value, quantity=below)
    elif isinstance(node, list):
        node[:] = [_spell(value, quantity=quantity) for value in node]
    elif isinstance(node, str) and quantity:
        return canonical_quantity(node)
    return node
