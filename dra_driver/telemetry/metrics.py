"""Metrics by OpenTelemetry, read as Prometheus text and sent by OTLP where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from threading import Lock
from typing import TYPE_CHECKING

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dra_driver.telemetry.instruments import INSTRUMENTS, Instrument, Kind

if TYPE_CHECKING:
    from dra_driver.telemetry.otlp import EndingGauge, OtlpSource

CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 45)
"""Upper bounds of histograms; the kubelet gives up after 45 s."""

_SCOPE = "gpuslice"
_LAST_SEND_S = 2.0
"""A collector that does not answer must not keep the process."""

_Record = Callable[[float, dict[str, str]], None]


class Metrics:
    """A Recorder; unknown names are bugs and raise KeyError.

    Args:
        version: of this program.
        otlp: who sends metrics to the collector that OpenTelemetry's variables name; None: nobody.

    Raises:
        SettingsError: one of those variables has an impossible value.
    """

    def __init__(self, *, version: str, otlp: OtlpSource | None = None) -> None:
        self._registry = CollectorRegistry()
        self._reading = Lock()
        self._series = {each.name: _Series(each) for each in INSTRUMENTS if each.series_end}
        # Resource and scope are the same for every metric: build_info says it once.
        page = PrometheusMetricReader(
            disable_target_info=True,
            prefix="gpuslice",
            scope_info_enabled=False,
            registry=self._registry,
        )
        resource = otlp.resource(version) if otlp is not None else Resource.get_empty()
        self._provider = MeterProvider(
            metric_readers=[page, *(self._senders() if otlp is not None else ())],
            resource=resource,
            shutdown_on_exit=False,
        )
        ProcessCollector(registry=self._registry)
        meter = self._provider.get_meter(_SCOPE)
        for series in self._series.values():
            self._registry.register(series)
        self._record = {
            each.name: self._series[each.name].set if each.series_end else _create(meter, each)
            for each in INSTRUMENTS
        }
        meter.create_gauge("build_info", description="1; the labels say what runs.").set(
            1, {"version": version}
        )

    def count(self, name: str, /, **labels: str) -> None:
        self._record[name](1, labels)

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        self._record[name](value, labels)

    def gauge(self, name: str, value: float, /, **labels: str) -> None:
        self._record[name](value, labels)

    def forget(self, name: str, /, **labels: str) -> None:
        self._series[name].forget(labels)

    def text(self) -> bytes:
        """Everything as of now, in the format of `CONTENT_TYPE`."""
        # The exporter mixes up two readers that come at the same time.
        with self._reading:
            return generate_latest(self._registry)

    def close(self) -> None:
        """Send a last time where metrics are sent, for two seconds at most."""
        self._provider.shutdown(timeout_millis=_LAST_SEND_S * 1000)

    def _senders(self) -> Iterator[MetricReader]:
        from dra_driver.telemetry.otlp import otlp_reader  # noqa: PLC0415 - an extra, and 170 ms

        yield otlp_reader(lambda: [series.now() for series in self._series.values()], scope=_SCOPE)


class _Series(Collector):
    """A gauge whose series end. OpenTelemetry's keep every set of labels that they ever saw."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._lock = Lock()
        self._values: dict[tuple[str, ...], float] = {}

    def set(self, value: float, labels: dict[str, str]) -> None:
        with self._lock:
            self._values[self._key(labels)] = value

    def forget(self, labels: dict[str, str]) -> None:
        with self._lock:
            self._values.pop(self._key(labels), None)

    def now(self) -> EndingGauge:
        from dra_driver.telemetry.otlp import EndingGauge  # noqa: PLC0415 - as above

        with self._lock:
            values = sorted(self._values.items())
        return EndingGauge(
            name=self._instrument.name,
            description=self._instrument.description,
            series=tuple(
                (dict(zip(self._instrument.labels, key, strict=True)), value)
                for key, value in values
            ),
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            f"gpuslice_{self._instrument.name}",
            self._instrument.description,
            labels=tuple(self._instrument.labels),
        )
        with self._lock:
            values = sorted(self._values.items())
        for key, value in values:
            family.add_metric(key, value)
        if values:
            yield family

    def _key(self, labels: dict[str, str]) -> tuple[str, ...]:
        return tuple(labels[name] for name in self._instrument.labels)


def _create(meter: Meter, instrument: Instrument) -> _Record:
    name, description = instrument.name, instrument.description
    match instrument.kind:
        case Kind.COUNTER:
            counter = meter.create_counter(name, description=description)
            for values in product(*instrument.labels.values()):
                counter.add(0, dict(zip(instrument.labels, values, strict=True)))
            return counter.add
        case Kind.GAUGE:
            return meter.create_gauge(name, description=description).set
        case Kind.HISTOGRAM:
            histogram = meter.create_histogram(
                name, description=description, explicit_bucket_boundaries_advisory=_SECONDS
            )
            return histogram.record
