"""Constraints between the devices of one claim, as a search adds and removes devices.

Source: k8s.io/dynamic-resource-allocation v0.34.4 and v0.37.2, structured,
matchAttributeConstraint and distinctAttributeConstraint.
"""

from __future__ import annotations

from typing import Protocol

from dra_driver.model.pool import AttributeValue
from dra_driver.plan.allocate_values import (
    AttributeConstraint,
    DeviceId,
    DeviceRequest,
    Offer,
    SchedulerRules,
)


class Constraint(Protocol):
    def add(self, request: DeviceRequest, offer: Offer) -> bool:
        """Add a device; False, and nothing is added, where it does not fit to the others."""
        ...

    def remove(self, request: DeviceRequest, offer: Offer) -> None:
        """Undo the newest `add` of this device."""
        ...


def build_constraint(spec: AttributeConstraint, rules: SchedulerRules) -> Constraint:
    if not spec.distinct:
        return _Match(spec)
    return _FirstDistinct(spec) if rules.first else _Distinct(spec)


def find_attribute(offer: Offer, name: str) -> AttributeValue | None:
    """An attribute by its full name; the driver's own may be published without their domain."""
    if name in offer.attributes:
        return offer.attributes[name]
    domain, _, own = name.partition("/")
    return offer.attributes.get(own) if domain == offer.id.driver else None


class _Match:
    """All devices have the value of the first."""

    def __init__(self, spec: AttributeConstraint) -> None:
        self._spec = spec
        self._value: AttributeValue | None = None
        self._devices = 0

    def add(self, request: DeviceRequest, offer: Offer) -> bool:
        if not _concerns(self._spec, request):
            return True
        value = find_attribute(offer, self._spec.attribute)
        if value is None or (self._devices and not _same(value, self._value)):
            return False
        if not self._devices:
            self._value = value
        self._devices += 1
        return True

    def remove(self, request: DeviceRequest, offer: Offer) -> None:
        del offer
        if _concerns(self._spec, request):
            self._devices -= 1


class _Distinct:
    """No two devices have the same value."""

    def __init__(self, spec: AttributeConstraint) -> None:
        self._spec = spec
        self._values: list[AttributeValue] = []

    def add(self, request: DeviceRequest, offer: Offer) -> bool:
        if not _concerns(self._spec, request):
            return True
        value = find_attribute(offer, self._spec.attribute)
        if value is None or any(_same(value, other) for other in self._values):
            return False
        self._values.append(value)
        return True

    def remove(self, request: DeviceRequest, offer: Offer) -> None:
        del offer
        if _concerns(self._spec, request):
            self._values.pop()


class _FirstDistinct:
    """As 1.34 has it.

    It compares where values are stored, which tells devices apart but not values, and it remembers
    the newest device of each request only.
    """

    def __init__(self, spec: AttributeConstraint) -> None:
        self._spec = spec
        self._newest: dict[str, DeviceId] = {}
        self._devices = 0

    def add(self, request: DeviceRequest, offer: Offer) -> bool:
        if not _concerns(self._spec, request):
            return True
        if find_attribute(offer, self._spec.attribute) is None:
            return False
        if self._devices and offer.id in self._newest.values():
            return False
        self._newest[request.parent or request.name] = offer.id
        self._devices += 1
        return True

    def remove(self, request: DeviceRequest, offer: Offer) -> None:
        del offer
        if _concerns(self._spec, request):
            self._newest.pop(request.parent or request.name, None)
            self._devices -= 1


def _concerns(spec: AttributeConstraint, request: DeviceRequest) -> bool:
    names = {request.parent or request.name, request.full_name}
    return not spec.requests or bool(names & spec.requests)


def _same(one: AttributeValue, other: AttributeValue | None) -> bool:
    # In Python True == 1; a bool and an int are different kinds of attribute.
    return type(one) is type(other) and one == other
