"""One run of the benchmark, from an empty folder to a document of figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from tests.bench.drivers import GPUSLICE, LIMITED, REFERENCE, Driver, Usage
from tests.bench.floor import Floor
from tests.bench.machine import load_average, machine
from tests.bench.measure import BURST, Bench, Figures, Form
from tests.bench.mps import measure_mps
from tests.bench.site import Site, large_nodes, shared_claims, site
from tests.bench.starts import measure_starts, warm_up

_PREFIX = "gpuslice-bench-"
_REQUESTS = 20
_LEAST_SHARES = 240


def run(form: Form, *, name: str, binary: Path, folder: Path | None) -> dict[str, Any]:
    """Measure and give the document; `folder` decides which disk is written to."""
    with (
        TemporaryDirectory(prefix=_PREFIX, dir=folder) as temporary,
        TemporaryDirectory(prefix=_PREFIX, dir=_memory()) as in_memory,
    ):
        root = Path(temporary)
        loads = [load_average()]
        with site(root, run_folder=Path(in_memory), binary=binary) as found:
            _say(f"load average {loads[0]}; starting the drivers")
            warm_up(found)
            bench = _measured(form, found, root, loads)
            _say(f"{form.starts} cold starts of each driver")
            measure_starts(found, bench.figures, form.starts)
            with _told("shares that MPS enforces"):
                measure_mps(found, bench.figures, form, root / "bare")
        loads.append(load_average())
        return {
            "form": name,
            "machine": machine(root),
            "rounds": form.rounds,
            "starts": form.starts,
            "live": form.live,
            "cycles": min(bench.cycles.values()),
            "loadAverages": loads,
            "metrics": bench.figures.metrics,
        }


def _memory() -> Path | None:
    """Where a file system in memory is mounted; None: nowhere, so a disk stands in."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else None


def _measured(form: Form, found: Site, root: Path, loads: list[float]) -> Bench:
    with large_nodes(found) as drivers:
        claims = shared_claims(found, drivers, shares=max(form.live, _LEAST_SHARES))
        bench = Bench(form, drivers, claims, Floor(root, found.api))
        _usage(bench.figures, drivers, "idle")
        for number in range(form.rounds):
            with _told(f"round {number + 1} of {form.rounds}"):
                bench.round()
            loads.append(load_average())
            if number == 0:
                _usage(bench.figures, drivers, "warm")
        with _told(f"beside {form.live} live claims"):
            bench.live()
        bench.go_on()
        _usage(bench.figures, drivers, "after")
        if form.limited:
            with _told("100 at once under client-go's default limit"):
                _measure_limited(bench.figures, found, drivers[GPUSLICE], claims[GPUSLICE].whole)
        for variant, driver in drivers.items():
            _requests(bench.figures, found, driver, claims[variant].whole[:_REQUESTS])
    return bench


def _measure_limited(figures: Figures, found: Site, ours: Driver, claims: Any) -> None:
    limited = found.start(LIMITED)
    try:
        theirs = found.claims_of(limited, shares=0).whole
        for driver, variant, burst in ((ours, GPUSLICE, claims), (limited, REFERENCE, theirs)):
            seconds = driver.kubelet.prepare_at_once(burst[:BURST])
            figures.add("prepare-burst-limited", variant, p50=1e3 * seconds)
            driver.kubelet.unprepare_at_once(burst[:BURST])
    finally:
        limited.stop()


def _usage(figures: Figures, drivers: dict[str, Driver], when: str) -> None:
    for variant, driver in drivers.items():
        usage: Usage = driver.usage()
        figures.add(f"rss-{when}", variant, p50=usage.rss_mib)
        figures.add(f"pss-{when}", variant, p50=usage.pss_mib)
        figures.add(f"threads-{when}", variant, p50=usage.threads)
        figures.add(f"descriptors-{when}", variant, p50=usage.descriptors)


def _requests(figures: Figures, found: Site, driver: Driver, claims: Any) -> None:
    counts = [found.api.requests_of("resourceclaims", "GET")]
    for call in (driver.kubelet.prepare, driver.kubelet.unprepare):
        for claim in claims:
            call([claim])
        counts.append(found.api.requests_of("resourceclaims", "GET"))
    prepares, unprepares = counts[1] - counts[0], counts[2] - counts[1]
    figures.add("requests-prepare", driver.variant, p50=prepares / len(claims))
    figures.add("requests-unprepare", driver.variant, p50=unprepares / len(claims))


@contextmanager
def _told(what: str) -> Iterator[None]:
    started = perf_counter()
    yield
    _say(f"{what}: {perf_counter() - started:.0f} s")


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr)
