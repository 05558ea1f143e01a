"""What the benchmark says of the checkpoint hook."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.__main__ import judge
from tests.bench.hook import BEGINS, ENDS, FLOOR, LOCKS, OTHER, START, UNLOCKS, WITH, WITHOUT, WRITE
from tests.bench.hook_report import hook_table, missed


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
        "calls": dict.fromkeys(names, quick) | {WRITE: [4.0] * len(begins), BEGINS: begins},
        "dumps": {WITHOUT: [100.0, 200.0, 400.0], WITH: slower},
    }


def test_table_has_each_call_and_the_ratio_of_pairs() -> None:
    text = hook_table(_document(begins=[2.0, 9.0, 2.5], slower=[104.0, 180.0, 440.0]))
    assert "3 calls of each kind, 3 pairs of checkpoints; load average 0.5 to 2." in text
    assert "| floor: `/bin/true` | 1.00 | 1.00 |\n" in text
    assert "| floor: one durable write | 4.00 | 4.00 |\n" in text
    assert "| `pre-dump`, container with a claim | 2.50 | 9.00 |\n" in text
    assert "| checkpoint without the hook | 200.00 | 400.00 |\n" in text
    assert "| ratio within each pair | **1.040** (0.90 to 1.10) | |\n" in text
    assert "| ratio of the medians | 0.900 | |\n" in text


def test_nothing_is_missed_when_medians_are_at_the_aims(capsys: pytest.CaptureFixture[str]) -> None:
    document = _document(begins=[3.0, 3.0, 90.0], slower=[105.0, 210.0, 800.0])
    assert missed(document) == ()
    assert judge(document) == 0
    assert capsys.readouterr().err == ""


def test_missed_aims_are_told_when_a_call_and_checkpoints_are_slow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = _document(begins=[3.1, 3.2, 1.0], slower=[100.0, 220.0, 480.0])
    call, dump = missed(document)
    assert call == "`pre-dump`, container with a claim: 3.1 ms at the median, 3 are the aim"
    assert dump == "a checkpoint takes 1.100 times as long, 1.05 is the aim"
    assert judge(document) == 1
    assert capsys.readouterr().err == f"bench: {call}\nbench: {dump}\n"
