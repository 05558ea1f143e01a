"""Values and functions that Kubernetes adds to CEL, for cel-python.

Source: k8s.io/apiserver/pkg/cel/library, quantity.go and semverlib.go. Anything that is asked of a
value of another type is a TypeError, which cel-python turns into an error of the expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from celpy import celtypes
from celpy.evaluation import CELEvalError

from dra_driver.model.quantity import parse_quantity

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_NUMBERS = (celtypes.IntType, celtypes.UintType, celtypes.DoubleType)


@dataclass(frozen=True, slots=True)
class Quantity:
    value: Decimal


@dataclass(frozen=True, slots=True)
class Semver:
    """A version by its precedence; what follows "+" does not count."""

    precedence: tuple[Any, ...]

    @property
    def numbers(self) -> tuple[int, int, int]:
        major, minor, patch = self.precedence[:3]
        return major, minor, patch


def quantity(text: object) -> Quantity:
    return Quantity(parse_quantity(_text(text)))


def semver(text: object) -> Semver:
    """Read a version of semver 2.0.0.

    Raises:
        ValueError: it is none.
    """
    match = _SEMVER.fullmatch(_text(text))
    if match is None:
        raise ValueError(f"{text!r} is no version: write three numbers, such as 1.2.3")
    *numbers, pre = match.groups()
    # A version without a pre-release follows all that have one.
    parts = tuple(_identifier(part) for part in pre.split(".")) if pre else ()
    return Semver((*map(int, numbers), not pre, parts))


def equals(one: object, other: object) -> object:
    """CEL's ==: values of different types differ, except numbers."""
    return _unless_error(_equal, one, other)


def differs(one: object, other: object) -> object:
    return _unless_error(lambda left, right: not _equal(left, right), one, other)


def contains(item: object, container: object) -> object:
    """CEL's `in`: an element of a list or a key of a map."""
    return _unless_error(_within, item, container)


def _unless_error(
    decide: Callable[[object, object], bool], one: object, other: object
) -> celtypes.BoolType | CELEvalError:
    # Operators get errors of their operands as values, so that && and || can look past them.
    for each in (one, other):
        if isinstance(each, CELEvalError):
            return each
    return celtypes.BoolType(decide(one, other))


def _equal(one: object, other: object) -> bool:
    kinds = {type(one), type(other)}
    if len(kinds) == 1:
        return bool(one == other)
    if isinstance(one, _NUMBERS) and isinstance(other, _NUMBERS):
        return float(one) == float(other)
    if {Quantity, Semver} & kinds:
        raise TypeError("a quantity or version can be compared with its like only")
    return False


def _within(item: object, container: object) -> bool:
    if not isinstance(container, list | dict):
        raise TypeError("`in` needs a list or a map")
    return any(_equal(item, each) for each in container)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a string is needed, not {type(value).__name__}")
    return str(value)


def _identifier(part: str) -> tuple[int, int, str]:
    return (0, int(part), "") if part.isdigit() else (1, 0, part)


def _compare(one: object, other: object) -> int:
    left: Any
    right: Any
    match one, other:
        case Quantity(value=left), Quantity(value=right):
            pass
        case Semver(precedence=left), Semver(precedence=right):
            pass
        case _:
            raise TypeError("only two quantities or two versions can be compared")
    return int(left > right) - int(left < right)


def _is_valid(read: Callable[[object], object]) -> Callable[[object], celtypes.BoolType]:
    def valid(text: object) -> celtypes.BoolType:
        try:
            read(text)
        except ValueError:
            return celtypes.BoolType(False)
        return celtypes.BoolType(True)

    return valid


def _number_of(index: int) -> Callable[[object], celtypes.IntType]:
    def number(value: object) -> celtypes.IntType:
        if not isinstance(value, Semver):
            raise TypeError("only a version has numbers")
        return celtypes.IntType(value.numbers[index])

    return number


def _as_integer(value: object) -> celtypes.IntType:
    if not isinstance(value, Quantity) or value.value % 1:
        raise TypeError("only a quantity that is a whole number is an integer")
    return celtypes.IntType(int(value.value))


def _sign(value: object) -> celtypes.IntType:
    if not isinstance(value, Quantity):
        raise TypeError("only a quantity has a sign")
    return celtypes.IntType(_compare(value, Quantity(Decimal(0))))


def _ascii(change: Callable[[str], str]) -> Callable[[object], celtypes.StringType]:
    def changed(value: object) -> celtypes.StringType:
        text = _text(value)
        return celtypes.StringType("".join(change(c) if c.isascii() else c for c in text))

    return changed


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "_==_": equals,
    "_!=_": differs,
    "_in_": contains,
    "quantity": quantity,
    "semver": semver,
    "isQuantity": _is_valid(quantity),
    "isSemver": _is_valid(semver),
    "sign": _sign,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "compareTo": lambda one, other: celtypes.IntType(_compare(one, other)),
    "isGreaterThan": lambda one, other: celtypes.BoolType(_compare(one, other) > 0),
    "isLessThan": lambda one, other: celtypes.BoolType(_compare(one, other) < 0),
    "asInteger": _as_integer,
    "major": _number_of(0),
    "minor": _number_of(1),
    "patch": _number_of(2),
    "lowerAscii": _ascii(str.lower),
    "upperAscii": _ascii(str.upper),
}
