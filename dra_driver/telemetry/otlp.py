"""Metrics sent to a collector by OTLP over gRPC, under the names that /metrics has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from time import time_ns
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.exporter import InvalidCompressionValueException
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource

from dra_driver.errors import SettingsError

PREFIX = "gpuslice_"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingGauge:
    """A gauge whose series end, as it is now."""

    name: str
    description: str
    series: tuple[tuple[dict[str, str], float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpSource:
    """Who sends.

    Attributes:
        process: such as "plugin"; each process of a node needs a name of its own.
        node: name of the node; may be empty.
        instance: tells apart processes of that name on the node; may be empty.
    """

    process: str
    node: str
    instance: str

    def resource(self, version: str) -> Resource:
        """What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say wins."""
        own = {
            "service.name": f"gpuslice-{self.process}",
            "service.version": version,
            "service.instance.id": self.instance or self.node,
            "k8s.node.name": self.node,
        }
        known = {name: value for name, value in own.items() if value}
        return Resource.create(known).merge(OTELResourceDetector().detect())


def otlp_reader(
    gauges: Callable[[], Iterable[EndingGauge]], *, scope: str
) -> PeriodicExportingMetricReader:
    """Collect and send from time to time, on a thread that ends with the reader's shutdown.

    Args:
        gauges: what the SDK does not know of.
        scope: whose metrics get the prefix.

    Raises:
        SettingsError: a variable of OpenTelemetry has an impossible value.
    """
    try:
        return PeriodicExportingMetricReader(_Exporter(OTLPMetricExporter(), gauges, scope))
    except (ValueError, RuntimeError, OSError, InvalidCompressionValueException) as error:
        raise SettingsError(
            f"a variable OTEL_… cannot be used: {error}; correct it, or unset"
            " OTEL_EXPORTER_OTLP_ENDPOINT"
        ) from error


class _Exporter(MetricExporter):
    def __init__(
        self, inner: MetricExporter, gauges: Callable[[], Iterable[EndingGauge]], scope: str
    ) -> None:
        super().__init__(
            preferred_temporality=inner._preferred_temporality,  # noqa: SLF001 - no other way
            preferred_aggregation=inner._preferred_aggregation,  # noqa: SLF001
        )
        self._inner = inner
        self._gauges = gauges
        self._scope = scope

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        resources = [
            replace(each, scope_metrics=list(map(self._whole, each.scope_metrics)))
            for each in metrics_data.resource_metrics
        ]
        whole = MetricsData(resource_metrics=resources)
        return self._inner.export(whole, timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return self._inner.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        self._inner.shutdown(timeout_millis, **kwargs)

    def _whole(self, metrics: ScopeMetrics) -> ScopeMetrics:
        if metrics.scope.name != self._scope:
            return metrics
        named = [replace(each, name=f"{PREFIX}{each.name}") for each in metrics.metrics]
        now_ns = time_ns()
        ending = [_metric(each, now_ns) for each in self._gauges() if each.series]
        return replace(metrics, metrics=named + ending)


def _metric(gauge: EndingGauge, now_ns: int) -> Metric:
    points = [
        NumberDataPoint(
            attributes=labels, start_time_unix_nano=0, time_unix_nano=now_ns, value=value
        )
        for labels, value in gauge.series
    ]
    return Metric(
        name=f"{PREFIX}{gauge.name}",
        description=gauge.description,
        unit="",
        data=Gauge(data_points=points),
    )
