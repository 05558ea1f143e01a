"""What the benchmark says of the checkpoint hook."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.__main__ import judge
from tests.bench.hook import (
    BEGINS,
    ENDS,
    FIRST,
    FLOOR,
    FRESH,
    LARGE,
    LOCKS,
    OTHER,
    SMALL,
    START,
    UNLOCKS,
    WITH,
    WITHOUT,
    WRITE,
)
from tests.bench.hook_report import hook_table, interval, missed
from tests.bench.runc import freezing_ms


def _dumps(*milliseconds: float, waits: int = 0) -> list[dict[str, float]]:
    """Of the first so many, CRIU waited for 100 ms."""
    return [
        {"milliseconds": each, "freezing_ms": 100.0 if number < waits else 0.0}
        for number, each in enumerate(milliseconds)
    ]


def _document(*, begins: list[float], slower: list[float]) -> dict[str, Any]:
    quick = [1.0] * len(begins)
    names = (FLOOR, START, OTHER, LOCKS, ENDS, UNLOCKS)
    return {
        "machine": {
            "cores": 2,
            "processor": "P",
            "memoryGib": 24,
            "fileSystem": "ext4",
            "python": "3.11.7",
            "date": "2026-11-30",
        },
        "loadAverages": [1.5, 0.5, 2.0],
        "largeMib": 256,
        "calls": dict.fromkeys(names, quick)
        | {WRITE: [4.0] * len(begins), BEGINS: begins, FIRST: begins[:1], FRESH: begins[:1]},
        "dumps": {
            SMALL: {WITHOUT: _dumps(100.0, 200.0, 400.0), WITH: _dumps(*slower)},
            LARGE: {WITHOUT: _dumps(1100.0, 1000.0, waits=1), WITH: _dumps(1001.0, 1003.0)},
        },
    }


def test_table_has_each_call_and_the_ratio_of_pairs() -> None:
    text = hook_table(_document(begins=[2.0, 9.0, 2.5], slower=[104.0, 180.0, 440.0]))
    assert "3 calls of each kind, 1 of them first ones; 3 and 2 pairs of checkpoints; load" in text
    assert "load average 0.5 to 2." in text
    assert "| floor: `/bin/true` | 1.00 | 1.00 | 1.00 |\n" in text
    assert "| floor: one durable write | 4.00 | 4.00 | 4.00 |\n" in text
    assert "| `pre-dump`, container with a claim, its first | 2.00 | 2.00 | 2.00 |\n" in text
    assert "| `pre-dump`, container with a claim, a later one | 2.50 | 2.00 | 9.00 |\n" in text
    assert (
        "| checkpoint of three small processes without the hook | 200.00 | 100.00 | 400.00 |\n"
    ) in text
    assert (
        "| difference within each pair, ms | **4.0** (-20.0 to 40.0, 95% sure) | | |\n"
        "| as a ratio | **1.020** (0.900 to 1.200, 95% sure) | | |\n"
    ) in text
    assert "| checkpoint of 256 MiB without the hook | 1050.00 | 1000.00 | 1100.00 |\n" in text
    assert "| difference within each pair, ms | **2.0** (1.0 to 3.0, 95% sure) | | |\n" in text


def test_wait_for_the_freezer_is_read_from_criu_s_log() -> None:
    log = (
        "(00.045606) freezer.state=THAWED\n(00.045732) freezer.state=FREEZING\n"
        "(00.149083) freezer.state=FROZEN\n(00.149109) freezing processes: 1 attempts done\n"
    )
    assert freezing_ms(log) == pytest.approx(103.351)
    assert freezing_ms(log.replace("FREEZING", "FROZEN")) == 0.0


def test_nothing_is_missed_when_medians_are_at_the_aims(capsys: pytest.CaptureFixture[str]) -> None:
    document = _document(begins=[3.0, 3.0, 90.0], slower=[105.0, 210.0, 800.0])
    assert missed(document) == ()
    assert judge(document) == 0
    assert capsys.readouterr().err == ""


def test_missed_aims_are_told_when_a_call_and_checkpoints_are_slow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = _document(begins=[1.0, 3.1, 3.2], slower=[100.0, 222.0, 480.0])
    document["calls"][FRESH] = [4.0]
    call, dump = missed(document)
    assert call == (
        "`pre-dump`, container with a claim, a later one: 3.1 ms at the median, 3 are the aim"
    )
    assert dump == "a checkpoint (small) takes 1.110 times as long, 1.05 is the aim"
    assert judge(document) == 1
    assert capsys.readouterr().err == f"bench: {call}\nbench: {dump}\n"


@pytest.mark.parametrize(
    ("count", "ranks"),
    # As tables of the sign test have them.
    [(1, (0, 0)), (3, (0, 2)), (6, (0, 5)), (10, (1, 8)), (20, (5, 14)), (40, (13, 26))],
)
def test_interval_is_between_the_ranks_of_the_sign_test(count: int, ranks: tuple[int, int]) -> None:
    assert interval([float(each) for each in range(count)]) == ranks


@given(st.lists(st.floats(min_value=-9, max_value=9), min_size=1, max_size=60))
def test_interval_holds_the_median_whatever_the_order(values: list[float]) -> None:
    least, most = interval(values)
    ordered = sorted(values)
    assert least <= ordered[len(values) // 2] <= most
    assert interval(ordered) == (least, most)


def test_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        interval([])
