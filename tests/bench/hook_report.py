"""From the figures of the checkpoint hook to its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from tests.bench.hook import BEGINS, ENDS, FLOOR, LOCKS, OTHER, START, UNLOCKS, WITH, WITHOUT, WRITE
from tests.bench.stats import percentile, ratio

CALL_MS = 3.0
"""What a call may take, of the median of all."""

DUMP_RATIO = 1.05
"""What a checkpoint with the hook may take over one without, of the median of the pairs."""

_TITLES = {
    FLOOR: "floor: `/bin/true`",
    WRITE: "floor: one durable write",
    START: "`createRuntime`, ordinary start",
    OTHER: "`pre-dump`, container without a claim",
    BEGINS: "`pre-dump`, container with a claim",
    LOCKS: "`network-lock`",
    ENDS: "`post-dump`",
    UNLOCKS: "`network-unlock`",
}


def hook_table(document: Mapping[str, Any]) -> str:
    """The figures as Markdown."""
    facts, loads = document["machine"], document["loadAverages"]
    calls = document["calls"]
    lines = [
        (
            f"{facts['cores']} cores ({facts['processor']}), {facts['memoryGib']} GiB,"
            f" {facts['fileSystem']}; Python {facts['python']}, {facts['date']}."
            f" {len(calls[FLOOR])} calls of each kind, {len(document['dumps'][WITH])} pairs of"
            f" checkpoints; load average {min(loads):g} to {max(loads):g}."
        ),
        "",
        "| | median, ms | 99th percentile, ms |",
        "|---|---|---|",
        *(_row(title, calls[name]) for name, title in _TITLES.items()),
        *_dump_rows(document["dumps"]),
    ]
    return "\n".join(lines) + "\n"


def missed(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Say which aims were missed."""
    found = [
        f"{_TITLES[name]}: {median(values):.1f} ms at the median, {CALL_MS:g} are the aim"
        for name, values in document["calls"].items()
        if name not in (FLOOR, WRITE) and median(values) > CALL_MS
    ]
    slower = ratio(document["dumps"][WITH], document["dumps"][WITHOUT]).median
    if slower > DUMP_RATIO:
        found.append(f"a checkpoint takes {slower:.3f} times as long, {DUMP_RATIO:g} is the aim")
    return tuple(found)


def _row(title: str, values: Sequence[float]) -> str:
    return f"| {title} | {median(values):.2f} | {percentile(values, 99):.2f} |"


def _dump_rows(dumps: Mapping[str, Sequence[float]]) -> Iterator[str]:
    slower = ratio(dumps[WITH], dumps[WITHOUT])
    yield _row("checkpoint without the hook", dumps[WITHOUT])
    yield _row("checkpoint with the hook", dumps[WITH])
    yield (
        f"| ratio within each pair | **{slower.median:.3f}**"
        f" ({slower.least:.2f} to {slower.most:.2f}) | |"
    )
    yield f"| ratio of the medians | {median(dumps[WITH]) / median(dumps[WITHOUT]):.3f} | |"
