"""Metrics on their way to a collector."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.app.pages import open_recorder
from dra_driver.errors import SettingsError
from dra_driver.settings import Settings
from dra_driver.telemetry.metrics import Metrics
from dra_driver.telemetry.off import NoMetrics
from dra_driver.telemetry.otlp_variables import check_otlp, otlp_installed
from tests.component.node_rig import node_rig, simulation
from tests.fakes.collector import Collector, collecting
from tests.waiting import eventually

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SHARE = {"namespace": "team-a", "gpu": "GPU-1"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("OTEL_", "GPUSLICE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as collector:
        monkeypatch.setenv(ENDPOINT, collector.url)
        yield collector


def _settings() -> Settings:
    return Settings(node_name="node-a", pod_uid="pod-1")


def test_recorder_sends_what_it_has_when_it_is_closed(collector: Collector) -> None:
    with open_recorder(_settings(), process="plugin") as recorder:
        recorder.count("claim_operations_total", operation="prepare", outcome="Ok")
        recorder.observe("claim_operation_seconds", 0.3, operation="prepare")
        recorder.gauge("share_clients", 3, claim="a", **SHARE)
    (sample,) = [
        each
        for each in collector.newest("gpuslice_claim_operations_total")
        if each.labels == {"operation": "prepare", "outcome": "Ok"}
    ]
    assert sample.value == 1
    assert sample.resource["service.name"] == "gpuslice-plugin"
    assert sample.resource["service.instance.id"] == "pod-1"
    assert sample.resource["k8s.node.name"] == "node-a"
    assert [each.value for each in collector.newest("gpuslice_claim_operation_seconds")] == [1]
    (share,) = collector.newest("gpuslice_share_clients")
    assert (share.labels, share.value) == ({"claim": "a", **SHARE}, 3)


def test_recorder_lets_the_environment_say_who_it_is(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "slices")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=west")
    with open_recorder(_settings(), process="mpsd"):
        pass
    resource = collector.newest("gpuslice_build_info")[0].resource
    assert (resource["service.name"], resource["k8s.cluster.name"]) == ("slices", "west")
    assert resource["k8s.node.name"] == "node-a"


def test_recorder_sends_no_series_that_has_ended(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")
    with open_recorder(_settings(), process="plugin") as recorder:
        assert isinstance(recorder, Metrics)
        recorder.gauge("share_clients", 1, claim="a", **SHARE)
        eventually(lambda: collector.newest("gpuslice_share_clients"), 30, "the series is sent")
        recorder.forget("share_clients", claim="a", **SHARE)
        eventually(lambda: not collector.newest("gpuslice_share_clients"), 30, "it ends")
        assert b"gpuslice_claim_operations_total" in recorder.text()


def test_recorder_ends_when_no_collector_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{silent.getsockname()[1]}")
        with open_recorder(_settings(), process="plugin") as recorder:
            recorder.count("recovery_problems_total")


@pytest.mark.parametrize(
    "variables",
    [{}, {ENDPOINT: " "}, {ENDPOINT: "http://c:4317", "OTEL_METRICS_EXPORTER": "none"}],
)
def test_recorder_costs_nothing_when_nobody_wants_metrics(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    check_otlp(os.environ, installed=lambda: False)
    with open_recorder(_settings(), process="plugin") as recorder:
        assert isinstance(recorder, NoMetrics)


@pytest.mark.parametrize("endpoint", [ENDPOINT, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"])
def test_check_says_how_to_install_what_sends(endpoint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check_otlp({endpoint: "http://c:4317"}, installed=lambda: False)
    assert str(caught.value) == (
        f"{endpoint} is 'http://c:4317', but the extra that sends metrics is not installed: "
        "pip install 'gpuslice[otlp]', or unset the variable"
    )


def test_check_refuses_another_protocol() -> None:
    variables = {ENDPOINT: "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    with pytest.raises(SettingsError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL is 'http/protobuf'"):
        check_otlp(variables)
    check_otlp(variables | {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"})
    assert otlp_installed()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zip"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
    ],
)
def test_recorder_refuses_variables_that_cannot_be_used(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with (
        pytest.raises(SettingsError, match=r"a variable OTEL_… cannot be used"),
        open_recorder(_settings(), process="plugin"),
    ):
        pass


def test_plugin_sends_its_metrics_until_it_ends(root: Path, collector: Collector) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin() as plugin:
        rig.wait_ready()
        eventually(lambda: "Published the pool" in plugin.log, 30, "the pool is published")
        assert plugin.stop() == 0
    writes = collector.newest("gpuslice_slice_writes_total")
    assert sum(each.value for each in writes) >= 1
    assert {each.resource["service.name"] for each in writes} == {"gpuslice-plugin"}


def test_plugin_ends_with_status_2_when_it_cannot_send(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://c:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with node_rig(root, simulation=simulation()) as rig, rig.plugin() as plugin:
        assert plugin.wait() == 2
        assert "gpuslice: OTEL_EXPORTER_OTLP_PROTOCOL is 'http/json'" in plugin.log
