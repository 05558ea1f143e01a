"""YAML documents that people write: read without surprises, checked field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import yaml

from dra_driver.model.quantity import parse_quantity

_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(ms|s|m)?$")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0}
_SHOWN_MAX = 80


class FieldError(ValueError):
    """A document is not as it has to be; the text names the line or the field's path."""


def load_yaml(text: str) -> object:
    """Read a YAML document.

    Numbers with a point stay text, because 12.10 and 550.54 are versions here. A key that stands
    twice is an error.

    Raises:
        FieldError: the text is not YAML; the error names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise FieldError(f"{where}{error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FieldError(f"not YAML: {error}") from error
    except (LookupError, AttributeError) as error:  # PyYAML's, of tags such as !!bool
        raise FieldError("not YAML: a value does not fit its tag") from error


class Fields:
    """The fields of one mapping; each reader checks the type and names the path.

    Args:
        data: the mapping.
        path: where it stands, "gpus[0]"; empty for the document.
        known: names that may stand in it; any other is an error.
    """

    def __init__(self, data: object, path: str, known: tuple[str, ...]) -> None:
        self._path = path
        if not isinstance(data, Mapping):
            raise FieldError(f"{path or 'the document'} is {shown(data)}, not a mapping of fields")
        self._data: Mapping[object, object] = data
        for name in data:
            if name not in known:
                raise FieldError(
                    f"{self.path_of(str(name))} is not a known field; known: {', '.join(known)}"
                )

    def path_of(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def has(self, name: str) -> bool:
        return name in self._data

    def is_null(self, name: str) -> bool:
        return name in self._data and self._data[name] is None

    def value(self, name: str) -> object:
        return self._data.get(name)

    def error(self, name: str, problem: str) -> FieldError:
        return FieldError(f"{self.path_of(name)}: {shown(self._data.get(name))} {problem}")

    def text(self, name: str, default: str) -> str:
        value = self._data.get(name, default)
        if not isinstance(value, str) or not value:
            raise self.error(name, "is not a text; put it in quotes")
        return value

    def integer(self, name: str, default: int, *, minimum: int = 0) -> int:
        value = self._data.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise self.error(name, f"is not a whole number of at least {minimum}")
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._data.get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, "is not true or false")
        return value

    def size_bytes(self, name: str, default: int) -> int:
        """A quantity such as 81559Mi, or a number of bytes."""
        value = self._data.get(name, default)
        try:
            amount = Decimal(value) if isinstance(value, int) else parse_quantity(str(value))
        except ValueError as error:
            raise FieldError(f"{self.path_of(name)}: {error}") from error
        if isinstance(value, bool) or amount < 0 or amount != amount.to_integral_value():
            raise self.error(name, "is not a whole number of bytes, such as 81559Mi")
        return int(amount)

    def duration_s(self, name: str) -> float:
        """A duration such as 8s, 200ms or 2m; a bare number is seconds."""
        match = _DURATION.match(str(self._data.get(name)))
        if match is None:
            raise self.error(name, "is not a duration; write for example 8s or 200ms")
        return float(match.group(1)) * _UNIT_S[match.group(2) or "s"]

    def items(self, name: str) -> tuple[tuple[str, object], ...]:
        """Path and value of each item of a list; a list that is left out or null is empty."""
        value = self._data.get(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self.error(name, "is not a list")
        return tuple((f"{self.path_of(name)}[{i}]", item) for i, item in enumerate(value))


def shown(value: object) -> str:
    """A value for an error text, shortened."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[object] = set()
        for key_node, _ in node.value:
            if isinstance(key_node, yaml.ScalarNode):
                if key_node.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"{key_node.value} stands twice", problem_mark=key_node.start_mark
                    )
                seen.add(key_node.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in ("tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
