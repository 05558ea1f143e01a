"""From the JSON object in a claim to a value, or to one sentence that says what is wrong."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dra_api.config.v1alpha1 import GpuConfigV1Alpha1, SliceConfigV1Alpha1
from dra_driver.model.config import DeviceConfig, SliceConfig
from dra_driver.model.share import Sharing

API_VERSION = "config.gpuslice.io/v1alpha1"
KINDS: tuple[str, ...] = ("GpuConfig", "SliceConfig")

_MODELS: Mapping[str, type[GpuConfigV1Alpha1 | SliceConfigV1Alpha1]] = {
    "GpuConfig": GpuConfigV1Alpha1,
    "SliceConfig": SliceConfigV1Alpha1,
}
_TYPE_FIELDS = ("apiVersion", "kind")
_LARGEST_BYTES = 10 * 1024
"""Limit of opaque parameters in resource.k8s.io."""
_SHOWN_CHARACTERS = 80
_MPS_ONLY = ("maxCompute", "qos")


class ConfigError(ValueError):
    """An opaque config cannot be used; the text names where it stands, the field and its value."""


def decode(parameters: Mapping[str, Any], *, path: str, strict: bool = True) -> DeviceConfig:
    """Decode one opaque config.

    Args:
        parameters: the JSON object, as the API server gives it.
        path: where it stands, for the error text ("claim config 0").
        strict: unknown fields are errors, as users' misspellings must be. False for what was
            accepted and stored once, perhaps by a newer version: there they are left out.

    Raises:
        ConfigError: with every fault of the object, in the order of its fields.
    """
    text = json.dumps(parameters, separators=(",", ":"))
    if len(text) > _LARGEST_BYTES:
        raise ConfigError(
            f"{path}: parameters of {len(text)} bytes are too large: at most {_LARGEST_BYTES} bytes"
            f" are supported"
        )
    model = _model(parameters, path)
    known = _supported(model)
    fields = {
        name: value
        for name, value in parameters.items()
        if name not in _TYPE_FIELDS and (strict or name in known)
    }
    faults = [
        f"field {name}: null is not supported: leave the field out or write {known[name]}"
        for name, value in fields.items()
        if value is None and name in known
    ]
    if faults:
        raise ConfigError(f"{path}: {'; '.join(faults)}")
    try:
        value = model.model_validate_json(json.dumps(fields), strict=True).value()
    except ValidationError as e:
        raise ConfigError(f"{path}: {'; '.join(_faults(e, fields, known))}") from e
    _check_combination(value, fields, path)
    return value


def _model(
    parameters: Mapping[str, Any], path: str
) -> type[GpuConfigV1Alpha1 | SliceConfigV1Alpha1]:
    version, kind = (parameters.get(name) for name in _TYPE_FIELDS)
    if version == API_VERSION and isinstance(kind, str) and kind in _MODELS:
        return _MODELS[kind]
    said = " and ".join(
        f"{name} {_shown(parameters[name])}" if name in parameters else f"no {name}"
        for name in _TYPE_FIELDS
    )
    raise ConfigError(
        f"{path}: {said} is not supported: write apiVersion {API_VERSION} and kind "
        f"{' or '.join(KINDS)}"
    )


def _supported(model: type[GpuConfigV1Alpha1 | SliceConfigV1Alpha1]) -> dict[str, str]:
    return {
        field.alias or name: field.description or "" for name, field in model.model_fields.items()
    }


def _faults(
    error: ValidationError, fields: Mapping[str, Any], known: Mapping[str, str]
) -> list[str]:
    # A union of types reports one error per branch: one sentence per field is enough.
    names = dict.fromkeys(str(each["loc"][0]) for each in error.errors() if each["loc"])
    return [_fault(name, fields, known) for name in names] or [
        "the object is not valid JSON text: use plain Unicode strings only"
    ]


def _fault(name: str, fields: Mapping[str, Any], known: Mapping[str, str]) -> str:
    if name in known:
        return f"field {name}: {_shown(fields.get(name))} is not supported: write {known[name]}"
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in known], n=1)
    meant = next((each for each in known if close and each.lower() == close[0]), None)
    hint = f" (did you mean {meant}?)" if meant else ""
    return (
        f"field {_shown(name)[1:-1]}: unknown{hint}, its value is {_shown(fields.get(name))}: "
        f"supported are {', '.join(known)}"
    )


def _check_combination(value: DeviceConfig, fields: Mapping[str, Any], path: str) -> None:
    if not isinstance(value, SliceConfig):
        return
    if value.sharing is not Sharing.TIME_SLICING:
        _check_interval(value, path)
        return
    # A limit that nothing enforces is a promise that would be broken in silence.
    idle = [name for name in _MPS_ONLY if name in fields]
    if idle:
        raise ConfigError(
            f"{path}: field {idle[0]}: {_shown(fields[idle[0]])} cannot be enforced with sharing "
            f"TimeSlicing: leave it out or use sharing MPS"
        )


def _check_interval(value: SliceConfig, path: str) -> None:
    if value.time_slice is not None:
        told = f"sharing {value.sharing}" if value.sharing else "no sharing"
        raise ConfigError(
            f"{path}: field timeSlice: {_shown(value.time_slice)} cannot be had with {told}: write "
            f"sharing TimeSlicing beside it or leave it out"
        )


def _shown(value: object) -> str:
    return _cut(json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
