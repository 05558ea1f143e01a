from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from dra_driver.ports import Recorder
from dra_driver.telemetry.instruments import INSTRUMENTS, Kind
from dra_driver.telemetry.metrics import Metrics
from tests.arch.sources import sources

_VERBS = {"count": Kind.COUNTER, "observe": Kind.HISTOGRAM, "gauge": Kind.GAUGE}


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    metrics = Metrics(version="1.2.3")
    yield metrics
    metrics.close()


def _lines(metrics: Metrics) -> list[str]:
    return metrics.text().decode().splitlines()


def test_metrics_starts_counters_at_zero_for_all_known_labels(metrics: Metrics) -> None:
    lines = _lines(metrics)
    assert 'gpuslice_registrations_total{outcome="refused"} 0.0' in lines
    assert 'gpuslice_claim_operations_total{operation="unprepare",outcome="OutOfTime"} 0.0' in lines


def test_metrics_counts_observes_and_gauges(metrics: Metrics) -> None:
    recorder: Recorder = metrics
    recorder.count("claim_operations_total", operation="prepare", outcome="Ok")
    recorder.count("claim_operations_total", operation="prepare", outcome="Ok")
    recorder.observe("claim_operation_seconds", 0.3, operation="prepare")
    recorder.gauge("health_streams", 2)
    lines = _lines(metrics)
    assert 'gpuslice_claim_operations_total{operation="prepare",outcome="Ok"} 2.0' in lines
    assert 'gpuslice_claim_operation_seconds_bucket{le="0.25",operation="prepare"} 0.0' in lines
    assert 'gpuslice_claim_operation_seconds_bucket{le="0.5",operation="prepare"} 1.0' in lines
    assert "gpuslice_health_streams 2.0" in lines
    assert 'gpuslice_build_info{version="1.2.3"} 1.0' in lines


def test_metrics_keep_names_and_labels_as_declared(metrics: Metrics) -> None:
    families = {line.split()[2] for line in _lines(metrics) if line.startswith("# TYPE")}
    ours = {name for name in families if name.startswith("gpuslice_")}
    # All others appear with their first value.
    known = {
        f"gpuslice_{each.name}"
        for each in INSTRUMENTS
        if each.kind is Kind.COUNTER and all(each.labels.values())
    }
    assert ours == known | {"gpuslice_build_info"}


def test_metrics_of_two_instances_are_apart(metrics: Metrics) -> None:
    other = Metrics(version="9")
    other.gauge("health_streams", 7)
    assert "gpuslice_health_streams 7.0" not in _lines(metrics)
    other.close()


def test_metrics_end_a_series_when_it_is_forgotten(metrics: Metrics) -> None:
    labels = {"namespace": "team-a", "gpu": "GPU-1"}
    metrics.gauge("share_clients", 2, claim="b", **labels)
    metrics.gauge("share_clients", 1, claim='a"b', **labels)
    metrics.gauge("share_clients", 3, claim="b", **labels)
    found = [line for line in _lines(metrics) if line.startswith("gpuslice_share_clients")]
    assert found == [
        'gpuslice_share_clients{claim="a\\"b",gpu="GPU-1",namespace="team-a"} 1.0',
        'gpuslice_share_clients{claim="b",gpu="GPU-1",namespace="team-a"} 3.0',
    ]
    for claim in ("b", 'a"b', "never"):
        metrics.forget("share_clients", claim=claim, **labels)
    assert not any("share_clients" in line for line in _lines(metrics))


def test_metrics_refuse_an_undeclared_name(metrics: Metrics) -> None:
    with pytest.raises(KeyError):
        metrics.count("surprises_total")


def test_instruments_are_what_the_code_records() -> None:
    declared = {each.name: each for each in INSTRUMENTS}
    used: set[str] = set()
    for where, verb, name, labels in _recordings():
        assert name in declared, f"{where}: {name} is not declared in telemetry/instruments.py"
        assert _VERBS[verb] is declared[name].kind, f"{where}: {name} is no {verb}"
        assert labels == set(declared[name].labels), f"{where}: other labels than declared"
        used.add(name)
    assert used == set(declared), "declared, but never recorded"


def test_instruments_name_their_unit() -> None:
    for each in INSTRUMENTS:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", each.name)
        assert each.name.endswith("_total") == (each.kind is Kind.COUNTER)
        assert each.name.endswith(("_seconds", "_bytes")) or each.kind is not Kind.HISTOGRAM
        assert each.description.endswith(".")


def _recordings() -> Iterator[tuple[str, str, str, set[str]]]:
    """Where, verb, name and labels of each call of a Recorder."""
    for source in sources("dra_driver"):
        for node in ast.walk(source.tree()):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=owner, attr="count" | "observe" | "gauge" as verb),
                    args=[ast.Constant(value=str(name)), *_],
                    keywords=keywords,
                ) if "recorder" in ast.unparse(owner):
                    labels = {str(keyword.arg) for keyword in keywords}
                    yield f"{source.name}:{node.lineno}", verb, name, labels
                case _:
                    pass
