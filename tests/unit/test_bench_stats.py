"""Arithmetic of the benchmark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.stats import Ratio, percentile, ratio, regressions

_TIMES = st.lists(st.floats(min_value=0.001, max_value=1000), min_size=1, max_size=50)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1.0), (50, 2.0), (51, 3.0), (75, 3.0), (76, 4.0), (100, 4.0)]
)
def test_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], percent) == expected


@given(values=_TIMES, percent=st.floats(min_value=0.1, max_value=100))
def test_percentile_is_a_value_that_enough_others_do_not_exceed(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)
    assert found in values
    assert sum(each <= found for each in values) >= len(values) * percent / 100


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_percentile_refuses_what_has_none(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile(values, percent)


def test_ratio_compares_within_rounds_and_gives_their_median_and_range() -> None:
    # The machine was five times slower in the second round, for both alike.
    assert ratio([1.0, 10.0, 3.0], [2.0, 10.0, 1.0]) == Ratio(median=1.0, least=0.5, most=3.0)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0])])
def test_ratio_refuses_rounds_that_do_not_match(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"round|zip"):
        ratio(ours, theirs)


def test_regressions_tell_ratios_above_twice_the_recorded_one() -> None:
    recorded = {"same": 1.0, "twice": 1.0, "worse": 1.0, "gone": 0.5}
    measured = {"same": 1.0, "twice": 2.0, "worse": 2.01, "new": 9.0}
    gone, worse = regressions(measured, recorded)
    assert gone == "gone: not measured; the recorded ratio is 0.50"
    assert worse.startswith("worse: ratio 2.01 is above 2 times the recorded 1.00")


@given(recorded=st.dictionaries(st.text(max_size=3), st.floats(min_value=0.01, max_value=100)))
def test_regressions_are_none_when_the_ratios_are_the_recorded_ones(
    recorded: dict[str, float],
) -> None:
    assert regressions(recorded, recorded) == ()
