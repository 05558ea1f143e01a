"""Arithmetic of the benchmark: percentiles, ratios inside a round, and what is a regression."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

REGRESSION_FACTOR = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """One variant's figure over another's, taken in each round, where both had the same machine."""

    median: float
    least: float
    most: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of all do not exceed (nearest rank).

    Raises:
        ValueError: there are no values, or `percent` is not above 0 and at most 100.
    """
    if not values or not 0 < percent <= 100:
        raise ValueError(f"no {percent}th percentile of {len(values)} values")
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Compare two variants round by round.

    Raises:
        ValueError: they were not measured in the same number of rounds, or in none.
    """
    each = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    if not each:
        raise ValueError("no round was measured")
    return Ratio(median=median(each), least=min(each), most=max(each))


def regressions(measured: Mapping[str, float], recorded: Mapping[str, float]) -> tuple[str, ...]:
    """Say which ratios passed `REGRESSION_FACTOR` times the recorded one, by name.

    A ratio that was recorded and is not measured is one too: a figure must not vanish silently. One
    that is measured for the first time is none.
    """
    found = []
    for name, before in sorted(recorded.items()):
        now = measured.get(name)
        if now is None:
            found.append(f"{name}: not measured; the recorded ratio is {before:.2f}")
        elif now > REGRESSION_FACTOR * before:
            found.append(
                f"{name}: ratio {now:.2f} is above {REGRESSION_FACTOR:g} times the recorded"
                f" {before:.2f}"
            )
    return tuple(found)
