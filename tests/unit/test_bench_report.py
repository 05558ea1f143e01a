"""What the benchmark says of its figures."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.bench.__main__ import README, RECORDED, spelled, with_table
from tests.bench.report import GROWTH, ratios, table


def _document(**metrics: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    return {
        "machine": {
            "cores": 2,
            "processor": "P",
            "memoryGib": 24,
            "fileSystem": "ext4",
            "kubernetes": "1.34.4",
            "python": "3.11.7",
            "date": "2026-11-30",
        },
        "rounds": 2,
        "starts": 3,
        "live": 500,
        "cycles": 2000,
        "loadAverages": [1.5, 0.5],
        "metrics": {name.replace("_", "-"): values for name, values in metrics.items()},
    }


def _both(ours: list[float], theirs: list[float]) -> dict[str, dict[str, list[float]]]:
    return {"gpuslice": {"p50": ours}, "reference": {"p50": theirs}}


def test_ratios_are_medians_of_rounds() -> None:
    document = _document(prepare_c1=_both([2.0, 9.0, 3.0], [1.0, 3.0, 3.0]))
    assert ratios(document) == {"prepare-c1": 2.0}


def test_ratios_leave_out_counts_and_what_the_reference_does_for_nothing() -> None:
    document = _document(
        threads_after=_both([40.0], [10.0]), requests_unprepare=_both([0.0], [0.0])
    )
    assert ratios(document) == {}


def test_ratios_tell_how_much_dearer_a_claim_is_beside_others() -> None:
    document = _document(cpu_c1=_both([2.0], [2.0]), cpu_live_c1=_both([3.0], [4.0]))
    assert ratios(document) == {"cpu-c1": 1.0, "cpu-live-c1": 0.75, GROWTH: 1.5}


def test_table_has_medians_and_ranges_of_what_was_measured() -> None:
    metric = {
        "gpuslice": {"p50": [1.0, 2.0, 4.0], "p99": [10.0, 20.0, 30.0]},
        "reference": {"p50": [2.0, 2.0, 2.0], "p99": [5.0, 5.0, 5.0]},
    }
    lines = table(_document(prepare_c1=metric, cpu_live_c1=_both([3.0], [2.0]))).splitlines()
    assert "load average 0.5 to 1.5" in lines[0]
    assert "| prepare, 1 in flight, ms | 2.0 / 20 | 2.0 / 5 | **1.00** (0.50 to 2.00) |" in lines
    assert any("beside 500 live claims" in line and "**1.50**" in line for line in lines)
    assert len(lines) == 6


def test_table_has_columns_of_those_that_were_measured_only() -> None:
    metric = _both([2.0], [1.0]) | {"minimal": {"p50": [1.5]}}
    lines = table(_document(prepare_c1=metric, cpu_c1=_both([3.0], [2.0]))).splitlines()
    assert lines[2] == "| | gpuslice | minimal | reference | ratio (range of rounds) |"
    assert lines[4] == "| prepare, 1 in flight, ms | 2.0 | 1.5 | 1.0 | **2.00** |"
    assert lines[5].endswith("| 3.00 |  | 2.00 | **1.50** |")


def _alone(p50: list[float], p99: list[float]) -> dict[str, dict[str, list[float]]]:
    return {"gpuslice": {"p50": p50, "p99": p99}}


def test_further_shares_are_compared_with_whole_gpus_of_the_same_driver() -> None:
    document = _document(
        prepare_mps_further=_alone([3.0, 4.0], [9.0, 9.0]),
        prepare_mps_whole=_alone([2.0, 4.0], [3.0, 3.0]),
    )
    assert ratios(document) == {"prepare-mps-further": 1.25}
    assert "| **1.25** (1.00 to 1.50) to whole GPU |" in table(document)


def test_first_shares_are_compared_with_the_bare_daemon() -> None:
    document = _document(prepare_mps_first={"gpuslice": {"p50": [30.0]}, "floor": {"p50": [20.0]}})
    assert "**1.50** to floor" in table(document)
    assert ratios(document) == {}
    assert "ms | 30.0 | 20.0 | **1.50** to floor |" in table(document)


def test_block_is_told_by_99th_percentiles_and_fails_nothing() -> None:
    document = _document(
        prepare_mps_blocked=_alone([1.0, 1.0], [6.0, 9.0]),
        prepare_mps_free=_alone([1.0, 1.0], [6.0, 6.0]),
    )
    assert ratios(document) == {}
    assert "| **1.25** (1.00 to 1.50) to without, 99th percentiles |" in table(document)


def test_readme_gets_the_table_between_its_marks_and_nowhere_else() -> None:
    document = _document(prepare_c1=_both([1.0], [2.0]))
    readme = README.read_text()
    changed = with_table(readme, document)
    assert changed != readme
    assert with_table(changed, json.loads(RECORDED.read_text())) == readme
    with pytest.raises(ValueError, match="marks"):
        with_table("no marks", document)


def test_readme_shows_the_recorded_figures() -> None:
    document = json.loads(RECORDED.read_text())
    assert table(document) in README.read_text()


def test_figures_are_spelled_with_the_digits_that_the_clock_is_good_for() -> None:
    document = _document(prepare_c1=_both([1.23456789], [2.0]))
    before = copy.deepcopy(document)
    assert json.loads(spelled(document))["metrics"]["prepare-c1"]["gpuslice"]["p50"] == [1.2346]
    assert document == before
