"""Cold starts: until the kubelet's question is answered, and until the slices are visible."""

from __future__ import annotations

from tests.bench.drivers import GPUSLICE, REFERENCE, Driver
from tests.bench.measure import Figures
from tests.bench.site import NODE_GPUS, Site

_WARM_UP = "start-warm-up"


def warm_up(site: Site) -> None:
    """Compile what is compiled once, and learn what the reference is to publish."""
    site.add_node(_WARM_UP)
    driver = Driver(site.setup, GPUSLICE, node=_WARM_UP, gpus=NODE_GPUS)
    try:
        site.wait_for_slices(_WARM_UP)
        site.publish_alike(_WARM_UP)
    finally:
        driver.stop()
    site.withdraw(_WARM_UP)


def measure_starts(site: Site, figures: Figures, starts: int) -> None:
    """Start each driver `starts` times on nodes that never had one, turn and turn about."""
    for number in range(starts):
        order = (GPUSLICE, REFERENCE) if number % 2 else (REFERENCE, GPUSLICE)
        for variant in order:
            node = f"start-{variant}-{number}"
            site.add_node(node)
            driver = Driver(site.setup, variant, node=node, gpus=NODE_GPUS)
            try:
                seen_s = site.wait_for_slices(node) - driver.started_at_s
            finally:
                driver.stop()
            figures.add("start-answered", variant, p50=1e3 * driver.answered_s)
            figures.add("start-visible", variant, p50=1e3 * seen_s)
            site.withdraw(node)
