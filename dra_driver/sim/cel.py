"""Selectors of claims and DeviceClasses, evaluated by cel-python.

It knows less than Kubernetes' CEL: no optional values (`.?x`, `orValue`) and no `cel.bind`, for
instance. What it does not know is an error: no selector is true because it was not understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import celpy
from celpy import celtypes
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from dra_driver.model.pool import AttributeValue, Version
from dra_driver.plan.allocate_values import AllocationError, Offer
from dra_driver.sim.cel_check import problem
from dra_driver.sim.cel_values import FUNCTIONS, METHODS, Quantity, semver


class CelSelectors:
    """Evaluates expressions, each compiled once; for one thread."""

    def __init__(self) -> None:
        self._environment = celpy.Environment()
        self._programs: dict[str, celpy.Runner] = {}

    def __call__(self, expression: str, offer: Offer) -> bool:
        """Whether the expression selects the device.

        Raises:
            AllocationError: it cannot be evaluated, or is neither true nor false.
        """
        program = self._programs.get(expression)
        if program is None:
            program = self._programs[expression] = self._compile(expression)
        try:
            value = program.evaluate({"device": device_value(offer)})
        except CELEvalError as error:
            raise AllocationError(f"CEL runtime error: {_text(error)}: {expression}") from error
        if not isinstance(value, celtypes.BoolType):
            raise AllocationError(f"CEL runtime error: the result is no bool: {expression}")
        return bool(value)

    def _compile(self, expression: str) -> celpy.Runner:
        try:
            tree = self._environment.compile(expression)
        except CELParseError as error:
            raise AllocationError(
                f"CEL compile error: this evaluator cannot read {expression}"
            ) from error
        if text := problem(tree):
            raise AllocationError(f"CEL compile error: {text}: {expression}")
        return self._environment.program(tree, functions={**FUNCTIONS, **METHODS})


class _Domains(celtypes.MapType):
    """A map in which domains that are not there are empty."""

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if key in self else celtypes.MapType()


def device_value(offer: Offer) -> celtypes.MapType:
    """A device as expressions see it: names without a domain are in the driver's."""
    attributes = {name: _attribute(value) for name, value in offer.attributes.items()}
    capacity = {name: Quantity(value.value) for name, value in offer.capacity.items()}
    return celtypes.MapType(
        {
            celtypes.StringType("driver"): celtypes.StringType(offer.id.driver),
            celtypes.StringType("allowMultipleAllocations"): celtypes.BoolType(offer.shareable),
            celtypes.StringType("attributes"): _by_domain(attributes, offer.id.driver),
            celtypes.StringType("capacity"): _by_domain(capacity, offer.id.driver),
        }
    )


def _by_domain(values: Mapping[str, Any], driver: str) -> _Domains:
    domains: dict[str, celtypes.MapType] = {}
    for name, value in values.items():
        domain, separator, own = name.rpartition("/")
        of_domain = domains.setdefault(domain if separator else driver, celtypes.MapType())
        of_domain[celtypes.StringType(own)] = value
    return _Domains({celtypes.StringType(name): each for name, each in domains.items()})


def _attribute(value: AttributeValue) -> Any:
    match value:
        case bool():
            return celtypes.BoolType(value)
        case int():
            return celtypes.IntType(value)
        case str():
            return celtypes.StringType(value)
        case Version(text=text):
            return semver(text)


def _text(error: CELEvalError) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
