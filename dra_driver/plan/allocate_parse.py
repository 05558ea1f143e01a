"""JSON of resource.k8s.io/v1, as the API server has it, into the values of an allocation.

What the stand-in does not follow is an error, never left out: counters, binding conditions, node
selectors and lists as attributes change who gets a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from dra_driver.model.pool import AttributeValue, Version
from dra_driver.model.quantity import parse_quantity
from dra_driver.plan.allocate_values import (
    AllocationError,
    AttributeConstraint,
    CapacityPolicy,
    DeviceConfig,
    DeviceId,
    DeviceRequest,
    Held,
    MainRequest,
    Offer,
    OfferedCapacity,
    OfferedClass,
    OfferedSlice,
    OfferedTaint,
    PendingClaim,
    Toleration,
)

Json = Mapping[str, Any]

_SLICE_UNKNOWN = ("nodeSelector", "perDeviceNodeSelection", "sharedCounters")
_DEVICE_UNKNOWN = (
    "nodeName",
    "nodeSelector",
    "allNodes",
    "consumesCounters",
    "bindsToNode",
    "bindingConditions",
    "compatibilityGroups",
)
_ATTRIBUTE_TYPES = ("bool", "int", "string", "version")


def parse_claim(body: Json) -> PendingClaim:
    """Read a ResourceClaim's spec."""
    metadata, devices = body["metadata"], (body.get("spec") or {}).get("devices") or {}
    label = f"{metadata.get('namespace', '')}/{metadata['name']}"
    return PendingClaim(
        label=label,
        requests=tuple(_request(label, each) for each in devices.get("requests") or ()),
        constraints=tuple(
            _constraint(label, index, each)
            for index, each in enumerate(devices.get("constraints") or ())
        ),
        configs=tuple(_config(each) for each in devices.get("config") or ()),
    )


def parse_class(body: Json) -> OfferedClass:
    """Read a DeviceClass."""
    name, spec = body["metadata"]["name"], body.get("spec") or {}
    return OfferedClass(
        name=name,
        selectors=_selectors(f"class {name}", spec),
        configs=tuple(_config(each) for each in spec.get("config") or ()),
    )


def parse_slice(body: Json) -> OfferedSlice:
    """Read a ResourceSlice."""
    spec, name = body["spec"], body["metadata"]["name"]
    pool = spec["pool"]
    _refuse(f"ResourceSlice {name}", spec, _SLICE_UNKNOWN)
    if not spec.get("nodeName") and not spec.get("allNodes"):
        raise AllocationError(f"ResourceSlice {name} names no node: give it nodeName or allNodes")
    return OfferedSlice(
        name=name,
        driver=spec["driver"],
        pool=pool["name"],
        generation=int(pool.get("generation") or 0),
        pool_slices=int(pool["resourceSliceCount"]),
        node=spec.get("nodeName") or "",
        offers=tuple(_offer(spec, each) for each in spec.get("devices") or ()),
    )


def parse_held(claims: Iterable[Json], *, consumable: bool) -> Held:
    """Sum up what claims with an allocation hold.

    Without `consumable` (see SchedulerRules) every device that is given out is held whole.
    """
    whole: set[DeviceId] = set()
    amounts: dict[DeviceId, dict[str, Decimal]] = {}
    for result in (each for claim in claims for each in allocation_results(claim)):
        if result.get("adminAccess"):
            continue
        device = DeviceId(result["driver"], result["pool"], result["device"])
        if not consumable or not result.get("shareID"):
            whole.add(device)
            continue
        held = amounts.setdefault(device, {})
        for name, text in (result.get("consumedCapacity") or {}).items():
            held[name] = held.get(name, Decimal(0)) + parse_quantity(str(text))
    return Held(whole=frozenset(whole), amounts=amounts)


def allocation_results(claim: Json) -> tuple[Json, ...]:
    """The results of a claim's allocation; empty where it has none."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return tuple((allocation.get("devices") or {}).get("results") or ())


def _request(label: str, body: Json) -> MainRequest:
    name = body["name"]
    if choices := body.get("firstAvailable"):
        return MainRequest(
            name=name,
            choices=tuple(_choice(label, each, each["name"], parent=name) for each in choices),
            prioritized=True,
        )
    exact = _choice(label, body["exactly"], name, parent="")
    return MainRequest(name=name, choices=(exact,), prioritized=False)


def _choice(label: str, body: Json, name: str, *, parent: str) -> DeviceRequest:
    where = f"claim {label}, request {name}"
    mode = body.get("allocationMode") or "ExactCount"
    if mode not in {"ExactCount", "All"}:
        raise AllocationError(f"{where}: unsupported count mode {mode}")
    if not body.get("deviceClassName"):
        raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
    tolerations = tuple(body.get("tolerations") or ())
    asked = (body.get("capacity") or {}).get("requests") or {}
    return DeviceRequest(
        name=name,
        parent=parent,
        device_class=body["deviceClassName"],
        selectors=_selectors(where, body),
        all_devices=mode == "All",
        count=int(body.get("count") or 1),
        admin_access=bool(body.get("adminAccess")),
        tolerations=tuple(_toleration(each) for each in tolerations),
        capacity={key: parse_quantity(str(text)) for key, text in asked.items()},
        tolerations_json=tolerations,
    )


def _selectors(where: str, body: Json) -> tuple[str, ...]:
    found = []
    for index, selector in enumerate(body.get("selectors") or ()):
        if not selector.get("cel"):
            raise AllocationError(
                f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
            )
        found.append(selector["cel"]["expression"])
    return tuple(found)


def _toleration(body: Json) -> Toleration:
    return Toleration(
        key=body.get("key") or "",
        exists=body.get("operator") == "Exists",
        value=body.get("value") or "",
        effect=body.get("effect") or "",
    )


def _constraint(label: str, index: int, body: Json) -> AttributeConstraint:
    requests = frozenset(body.get("requests") or ())
    if match := body.get("matchAttribute"):
        return AttributeConstraint(attribute=match, distinct=False, requests=requests)
    if distinct := body.get("distinctAttribute"):
        return AttributeConstraint(attribute=distinct, distinct=True, requests=requests)
    raise AllocationError(
        f"claim {label}, constraint #{index}: empty constraint (unsupported constraint type?)"
    )


def _config(body: Json) -> DeviceConfig:
    return DeviceConfig(
        requests=tuple(body.get("requests") or ()),
        body={key: value for key, value in body.items() if key != "requests"},
    )


def _offer(spec: Json, body: Json) -> Offer:
    device = DeviceId(spec["driver"], spec["pool"]["name"], body["name"])
    _refuse(f"device {device}", body, _DEVICE_UNKNOWN)
    attributes = (body.get("attributes") or {}).items()
    capacity = (body.get("capacity") or {}).items()
    return Offer(
        id=device,
        attributes={name: _attribute(device, name, value) for name, value in attributes},
        capacity={name: _capacity(value) for name, value in capacity},
        shareable=bool(body.get("allowMultipleAllocations")),
        taints=tuple(
            OfferedTaint(key=each["key"], value=each.get("value") or "", effect=each["effect"])
            for each in body.get("taints") or ()
        ),
    )


def _attribute(device: DeviceId, name: str, body: Json) -> AttributeValue:
    for kind in _ATTRIBUTE_TYPES:
        if kind in body:
            value: AttributeValue = body[kind]
            return Version(str(value)) if kind == "version" else value
    raise AllocationError(f"device {device}: attribute {name}: unsupported value {dict(body)}")


def _capacity(body: Json) -> OfferedCapacity:
    policy = body.get("requestPolicy")
    value = parse_quantity(str(body["value"]))
    if not policy:
        return OfferedCapacity(value=value)
    limits = policy.get("validRange") or {}
    return OfferedCapacity(
        value=value,
        policy=CapacityPolicy(
            default=_number(policy.get("default")),
            minimum=_number(limits.get("min")),
            maximum=_number(limits.get("max")),
            step=_number(limits.get("step")),
            values=tuple(parse_quantity(str(each)) for each in policy.get("validValues") or ()),
        ),
    )


def _number(text: object) -> Decimal | None:
    return None if text is None else parse_quantity(str(text))


def _refuse(where: str, body: Json, fields: tuple[str, ...]) -> None:
    for name in fields:
        if body.get(name):
            raise AllocationError(f"{where} has {name}, which this allocator does not follow")
