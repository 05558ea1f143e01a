"""From the figures of the checkpoint hook to its table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import comb
from statistics import median
from typing import Any

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
from tests.bench.stats import percentile

CALL_MS = 3.0
"""What a call may take, of the median of all; one about a container that has just been started, and
that the driver cannot know yet, waits for the kubelet besides."""

DUMP_RATIO = 1.05
"""What a checkpoint with the hook may take over one without: by the median of the differences."""

SURE = 0.95
"""How probable it is that the median of ever more pairs lies in the range that is shown."""

Dumps = Mapping[str, Sequence[Mapping[str, float]]]

_TITLES = {
    FLOOR: "floor: `/bin/true`",
    WRITE: "floor: one durable write",
    START: "`createRuntime`, ordinary start",
    OTHER: "`pre-dump`, container without a claim",
    FIRST: "`pre-dump`, container with a claim, its first",
    FRESH: "`pre-dump`, container with a claim, right after its start",
    BEGINS: "`pre-dump`, container with a claim, a later one",
    LOCKS: "`network-lock`",
    ENDS: "`post-dump`",
    UNLOCKS: "`network-unlock`",
}


def hook_table(document: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    facts, loads, dumps = document["machine"], document["loadAverages"], document["dumps"]
    calls = document["calls"]
    pairs = " and ".join(str(len(dumps[kind][WITH])) for kind in (SMALL, LARGE))
    lines = [
        (
            f"{facts['cores']} cores ({facts['processor']}), {facts['memoryGib']} GiB,"
            f" {facts['fileSystem']}; Python {facts['python']}, {facts['date']}."
            f" {len(calls[FLOOR])} calls of each kind, {len(calls[FIRST])} of them first ones;"
            f" {pairs} pairs of checkpoints; load average {min(loads):g} to {max(loads):g}."
        ),
        "",
        "| | median, ms | 10th percentile, ms | 99th percentile, ms |",
        "|---|---|---|---|",
        *(_row(title, calls[name]) for name, title in _TITLES.items()),
        *_dump_rows(dumps[SMALL], "three small processes"),
        *_dump_rows(dumps[LARGE], f"{document['largeMib']} MiB"),
    ]
    return "\n".join(lines) + "\n"


def missed(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which aims were missed."""
    found = [
        f"{_TITLES[name]}: {median(values):.1f} ms at the median, {CALL_MS:g} are the aim"
        for name, values in document["calls"].items()
        if name not in (FLOOR, WRITE, FRESH) and median(values) > CALL_MS
    ]
    for kind, dumps in document["dumps"].items():
        slower = _slower(dumps, median(_later(dumps)))
        if slower > DUMP_RATIO:
            found.append(
                f"a checkpoint ({kind}) takes {slower:.3f} times as long, {DUMP_RATIO:g} is the aim"
            )
    return tuple(found)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Two of the values between which the median of all that could be measured lies, most likely.

    By ranks alone, whatever the values' distribution: each lies above the median or below it like
    a coin. Of few values the range is that of all.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no interval of no values")
    count, outside, rank = len(values), 0.0, 0
    while rank < (count - 1) // 2:
        outside += 2 * comb(count, rank) / 2**count
        if outside > 1 - SURE:
            break
        rank += 1
    rank = max(0, rank - 1)
    ordered = sorted(values)
    return ordered[rank], ordered[count - 1 - rank]


def _milliseconds(dumps: Iterable[Mapping[str, float]]) -> list[float]:
    return [each["milliseconds"] for each in dumps]


def _later(dumps: Dumps) -> list[float]:
    """By how many milliseconds the one with the hook is slower; CRIU's luck is left out."""
    worked = {
        kind: [each["milliseconds"] - each["freezing_ms"] for each in found]
        for kind, found in dumps.items()
    }
    return [ours - theirs for ours, theirs in zip(worked[WITH], worked[WITHOUT], strict=True)]


def _slower(dumps: Dumps, later_ms: float) -> float:
    """A difference as a ratio to the whole of a checkpoint without the hook."""
    return 1 + later_ms / median(_milliseconds(dumps[WITHOUT]))


def _row(title: str, values: Sequence[float]) -> str:
    tenth, most = percentile(values, 10), percentile(values, 99)
    return f"| {title} | {median(values):.2f} | {tenth:.2f} | {most:.2f} |"


def _dump_rows(dumps: Dumps, what: str) -> Iterator[str]:
    yield _row(f"checkpoint of {what} without the hook", _milliseconds(dumps[WITHOUT]))
    yield _row("the same with the hook", _milliseconds(dumps[WITH]))
    later = _later(dumps)
    most_likely = (median(later), *interval(later))
    yield _range("difference within each pair, ms", most_likely, digits=1)
    yield _range("as a ratio", [_slower(dumps, each) for each in most_likely], digits=3)


def _range(title: str, values: Sequence[float], *, digits: int) -> str:
    middle, least, most = (f"{each:.{digits}f}" for each in values)
    return f"| {title} | **{middle}** ({least} to {most}, {SURE:.0%} sure) | | |"
