"""From a document of figures to ratios and to the table of the README."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from tests.bench.drivers import GPUSLICE, MINIMAL, PARALLEL, REFERENCE
from tests.bench.measure import FLOOR
from tests.bench.stats import Ratio, ratio

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure of the table.

    Attributes:
        base: the variant that the ratio is to.
        over: the metric of gpuslice itself that the ratio is to instead, and what the table calls
            it.
        of: what the ratio is of, p50 or p99.
        digits: behind the point.
        kept: whether a ratio that grows is a regression.
    """

    metric: str
    title: str
    base: str = REFERENCE
    over: tuple[str, str] | None = None
    of: str = "p50"
    digits: int = 1
    kept: bool = True


def _latencies(phase: str, title: str, base: str = REFERENCE) -> tuple[Row, Row]:
    return (
        Row(metric=f"prepare-{phase}", title=f"prepare, {title}, ms", base=base),
        Row(metric=f"unprepare-{phase}", title=f"unprepare, {title}, ms", base=base),
    )


def _enforced() -> Iterator[Row]:
    # Few in a run, and whether a daemon's answer is seen at once or 50 ms later decides over each.
    for row in _latencies("mps-first", "first share of a GPU, starts its MPS daemon", FLOOR):
        yield replace(row, kept=False)
    yield from _latencies("mps-whole", "whole GPU of the same node")
    for verb in ("prepare", "unprepare"):
        yield Row(
            metric=f"{verb}-mps-further",
            title=f"{verb}, further share of a GPU with MPS, ms",
            over=(f"{verb}-mps-whole", "whole GPU"),
        )
    yield Row(metric="prepare-mps-free", title="prepare, the same, 4 in flight on 4 GPUs, ms")
    # Not in the short form, and of few samples.
    yield Row(
        metric="prepare-mps-blocked",
        title="prepare, the same beside a GPU that is blocked for 40 s, ms",
        over=("prepare-mps-free", "without, 99th percentiles"),
        of="p99",
        kept=False,
    )


ROWS: tuple[Row, ...] = (
    *_latencies("c1", "1 in flight"),
    *_latencies("c4", "4 in flight"),
    *_latencies("c16", "16 in flight"),
    *_latencies("batch", "8 claims in one call"),
    *_latencies("burst", "100 at once, until the last"),
    Row(
        metric="prepare-burst-limited",
        title="prepare, 100 at once, reference with client-go's default limit, ms",
        digits=0,
        kept=False,
    ),
    *_latencies("share-c1", "shares, 1 in flight", PARALLEL),
    *_latencies("share-c16", "shares, 16 in flight", PARALLEL),
    *_latencies("share-burst", "100 shares of 8 GPUs at once", PARALLEL),
    *_enforced(),
    Row(metric="cpu-c1", title="processor time per claim and back, 1 in flight, ms", digits=2),
    Row(metric="cpu-c16", title="the same, 16 in flight, ms", digits=2),
    Row(
        metric="cpu-live-c1", title="the same, 1 in flight beside {live} live claims, ms", digits=2
    ),
    # Two milliseconds more or less of the Go driver's fifteen would make a regression of nothing.
    Row(
        metric="start-answered",
        title="process start until registration answers, ms",
        digits=0,
        kept=False,
    ),
    Row(metric="start-visible", title="process start until slices are visible, ms", digits=0),
    Row(metric="rss-idle", title="resident memory, idle, MiB", digits=0),
    Row(metric="rss-after", title="resident memory after {cycles} cycles, MiB", digits=0),
    Row(metric="threads-idle", title="threads, idle", digits=0, kept=False),
    Row(metric="threads-warm", title="threads after the first bursts", digits=0, kept=False),
    Row(metric="threads-after", title="threads at the end", digits=0, kept=False),
    Row(
        metric="descriptors-warm", title="descriptors after the first bursts", digits=0, kept=False
    ),
    Row(metric="descriptors-after", title="descriptors at the end", digits=0, kept=False),
    Row(metric="requests-prepare", title="API requests per prepare", digits=0),
    Row(metric="requests-unprepare", title="API requests per unprepare", digits=0, kept=False),
)
_VARIANTS = (GPUSLICE, MINIMAL, REFERENCE, PARALLEL, FLOOR)
GROWTH = "cpu-live-c1 over cpu-c1"
"""How much dearer a claim is beside many others; of gpuslice alone."""


def ratios(document: Document) -> dict[str, float]:
    """Median ratios that must not grow, by metric."""
    found = {
        row.metric: each.median for row in ROWS if row.kept and (each := _ratio(document, row))
    }
    few, many = (_p50(document, name, GPUSLICE) for name in ("cpu-c1", "cpu-live-c1"))
    if few and many:
        found[GROWTH] = median(many) / median(few)
    return found


def table(document: Document) -> str:
    """The figures as Markdown: median of the rounds' medians / median of their 99th percentiles."""
    facts = document["machine"]
    loads = document["loadAverages"]
    variants = _measured(document)
    lines = [
        (
            f"{facts['cores']} cores ({facts['processor']}), {facts['memoryGib']} GiB,"
            f" {facts['fileSystem']}; Kubernetes {facts['kubernetes']}, Python {facts['python']},"
            f" {facts['date']}. {document['rounds']} rounds, {document['starts']} cold starts;"
            f" load average {min(loads):g} to {max(loads):g}."
        ),
        "",
        f"| | {' | '.join(variants)} | ratio (range of rounds) |",
        f"|---|{'---|' * (len(variants) + 1)}",
    ]
    return "\n".join([*lines, *_rows(document)]) + "\n"


def _measured(document: Document) -> tuple[str, ...]:
    found = {variant for values in document["metrics"].values() for variant in values}
    return tuple(each for each in _VARIANTS if each in found)


def _rows(document: Document) -> Iterator[str]:
    variants = _measured(document)
    for row in ROWS:
        cells = [_cell(document, row, variant) for variant in variants]
        if any(cells):
            title = row.title.format(**document)
            yield f"| {title} | {' | '.join(cells)} | {_compared(document, row)} |"


def _cell(document: Document, row: Row, variant: str) -> str:
    middle = _p50(document, row.metric, variant)
    if not middle:
        return ""
    text = f"{median(middle):.{row.digits}f}"
    far = document["metrics"][row.metric][variant].get("p99", [])
    return f"{text} / {median(far):.0f}" if far else text


def _compared(document: Document, row: Row) -> str:
    found = _ratio(document, row)
    if found is None:
        return ""
    text = f"**{found.median:.2f}**"
    if found.most > found.least:
        text += f" ({found.least:.2f} to {found.most:.2f})"
    base = row.base if row.over is None else row.over[1]
    return text if base == REFERENCE else f"{text} to {base}"


def _ratio(document: Document, row: Row) -> Ratio | None:
    metric, variant = (row.metric, row.base) if row.over is None else (row.over[0], GPUSLICE)
    ours = _values(document, row.metric, GPUSLICE, row.of)
    theirs = _values(document, metric, variant, row.of)
    return ratio(ours, theirs) if ours and theirs and all(theirs) else None


def _p50(document: Document, metric: str, variant: str) -> list[float]:
    return _values(document, metric, variant, "p50")


def _values(document: Document, metric: str, variant: str, of: str) -> list[float]:
    values: list[float] = document["metrics"].get(metric, {}).get(variant, {}).get(of, [])
    return values
