"""Which of OpenTelemetry's own environment variables ask for metrics to be sent.

The exporter reads all others itself: headers, certificates, timeouts, compression, intervals.
Source: the OpenTelemetry specification, "OpenTelemetry Protocol Exporter" and "Environment Variable
Specification".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from dra_driver.errors import SettingsError

ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""The stronger one first, as are those above."""

_CHOICE = "OTEL_METRICS_EXPORTER"
_GRPC = "grpc"
_MODULE = "opentelemetry.exporter.otlp.proto.grpc"


def wants_otlp(environment: Mapping[str, str]) -> bool:
    """Whether metrics are to be sent; no OpenTelemetry is imported to find out."""
    if environment.get(_CHOICE, "").strip() == "none":
        return False
    return _given(ENDPOINTS, environment) is not None


def otlp_installed() -> bool:
    """Whether the extra `otlp` is there."""
    try:
        return find_spec(_MODULE) is not None
    except ModuleNotFoundError:
        return False


def check_otlp(
    environment: Mapping[str, str], *, installed: Callable[[], bool] = otlp_installed
) -> None:
    """Raises SettingsError where metrics are to be sent and cannot be."""
    if not wants_otlp(environment):
        return
    protocol = _given(PROTOCOLS, environment)
    if protocol is not None and environment[protocol].strip() != _GRPC:
        raise SettingsError(
            f"{protocol} is {environment[protocol]!r}: metrics are sent by {_GRPC} alone; unset it,"
            f" and let {_given(ENDPOINTS, environment)} name the collector's port for that"
        )
    if not installed():
        endpoint = _given(ENDPOINTS, environment) or ""
        raise SettingsError(
            f"{endpoint} is {environment[endpoint]!r}, but the extra that sends metrics is not"
            " installed: pip install 'gpuslice[otlp]', or unset the variable"
        )


def _given(names: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    return next((name for name in names if environment.get(name, "").strip()), None)
