"""A collector of OpenTelemetry on loopback that keeps what it gets."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as messages
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as services


@dataclass(frozen=True, slots=True)
class Sample:
    """One value, of a counter or gauge, or a histogram's count."""

    name: str
    labels: dict[str, str]
    value: float
    resource: dict[str, str]


class Collector(services.MetricsServiceServicer):
    """Attributes: url: of what OTEL_EXPORTER_OTLP_ENDPOINT is to be."""

    def __init__(self) -> None:
        self.url = ""
        self._lock = Lock()
        self._requests: list[Any] = []

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        with self._lock:
            self._requests.append(request)
        return messages.ExportMetricsServiceResponse()

    def requests(self) -> int:
        with self._lock:
            return len(self._requests)

    def newest(self, name: str) -> list[Sample]:
        """Samples of one metric in the request that came last."""
        with self._lock:
            last = self._requests[-1:]
        return [each for request in last for each in _samples(request) if each.name == name]

    def names(self) -> set[str]:
        with self._lock:
            return {each.name for request in self._requests for each in _samples(request)}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Serve until the block is left."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2, thread_name_prefix="collector"))
    add: Any = services.add_MetricsServiceServicer_to_server
    add(collector, server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()


def _samples(request: Any) -> Iterator[Sample]:
    for of_resource in request.resource_metrics:
        resource = _attributes(of_resource.resource.attributes)
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    labels = _attributes(point.attributes)
                    yield Sample(metric.name, labels, _value(point), resource)


def _value(point: Any) -> float:
    if point.DESCRIPTOR.name == "HistogramDataPoint":
        return float(point.count)
    return float(getattr(point, point.WhichOneof("value")))


def _attributes(pairs: Any) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in pairs}
