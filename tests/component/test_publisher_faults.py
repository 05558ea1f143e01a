"""The publisher against a server that misbehaves."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from dra_driver.sim.api_faults import Fault
from dra_driver.sim.api_server import SimApiServer
from tests import builders
from tests.component.publishing import FAST, Running, node, wait_until
from tests.component.publishing_server import (
    SLICES,
    attempts,
    devices,
    kubeconfig,
    quiet,
    server,
    watches,
)
from tests.unit.publishing import sick

__all__ = ["kubeconfig", "server"]


def test_publisher_slows_down_when_another_writer_never_gives_in(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            for each in server.list(SLICES):
                server.delete(SLICES, each["metadata"]["name"])
            threading.Event().wait(0.01)
        # At 0.05 s each it would be some sixty; the pauses double up to 0.3 s.
        assert len(attempts(server, "create")) < 25


def test_publisher_converges_with_growing_pauses_when_the_server_fails(
    server: SimApiServer, kubeconfig: Path
) -> None:
    server.faults.add(
        Fault(verb="create", resource=SLICES, status=500, times=5),
        Fault(verb="create", resource=SLICES, status=409, reason="Conflict"),
    )
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        wait_until(lambda: running.state.problem.count("500"))
        running.wait_published()
        assert running.recorder.counted("publish_failures_total", kind="transient") >= 3
        # Faults hit the dry runs of the probe too.
        assert server.faults.pending() == 0
        server.faults.add(Fault(verb="update", status=503, times=6))
        running.set(sick(node(1), builders.uuid(0)))
        wait_until(lambda: devices(server)[0].get("taints"))
        # The server writes a request down when it has answered.
        wait_until(lambda: len(attempts(server, "update")) >= 7)
        tries = attempts(server, "update")
        pauses = [later - earlier for earlier, later in pairwise(tries)]
        assert len(tries) == 7
        assert max(pauses[3:]) > 2 * min(pauses)
        assert max(pauses) < FAST.retry_cap_s + 0.5


def test_publisher_converges_when_writes_hang(server: SimApiServer, kubeconfig: Path) -> None:
    with Running(kubeconfig=kubeconfig, inventory=None) as running:
        running._api._transport._answer_timeout_s = 0.3
        server.faults.add(Fault(verb="create", resource=SLICES, times=2, delay_s=600.0))
        running.set(node(1))
        running.wait_published()
        server.faults.add(Fault(verb="update", resource=SLICES, times=2, delay_s=600.0))
        running.set(sick(node(1), builders.uuid(0)))
        wait_until(lambda: devices(server)[0].get("taints"))
        running.wait_published()
        assert server.faults.pending() == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault(verb="list", resource=SLICES, status=500, times=2),
        Fault(resource="version", reset=True, times=2),
        Fault(verb="watch", resource=SLICES, status=410, reason="Expired", times=2),
        Fault(verb="watch", resource=SLICES, reset=True, times=2),
        Fault(verb="get", resource="nodes", status=429, reason="TooManyRequests", times=2),
    ],
    ids=lambda fault: f"{fault.verb}-{fault.resource}-{fault.status}",
)
def test_publisher_publishes_and_watches_when_one_kind_of_request_fails(
    server: SimApiServer, kubeconfig: Path, fault: Fault
) -> None:
    server.faults.add(fault)
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        wait_until(lambda: server.faults.pending() == 0)
        wait_until(lambda: any(each.status == 200 for each in watches(server)))
        server.delete(SLICES, server.list(SLICES)[0]["metadata"]["name"])
        wait_until(lambda: len(devices(server)) == 2)


def test_publisher_lists_again_when_its_watch_is_too_old(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        wait_until(lambda: watches(server))
        server.store.compact()
        wait_until(lambda: len(watches(server)) > 1)
        server.delete(SLICES, server.list(SLICES)[0]["metadata"]["name"])
        wait_until(lambda: len(devices(server)) == 2)


def test_publisher_heals_what_happened_when_the_server_was_away(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        server.stop()
        running.set(node(2))
        wait_until(lambda: "no answer" in running.state.problem)
        assert running.state.published
        server.delete(SLICES, server.list(SLICES)[0]["metadata"]["name"])
        server.start()
        wait_until(lambda: len(devices(server)) == 4)
        running.wait_published()
        quiet(server)


def test_publisher_asks_ever_more_rarely_when_it_is_refused(
    server: SimApiServer, kubeconfig: Path
) -> None:
    server.faults.add(Fault(verb="list", resource=SLICES, status=403, reason="Forbidden", times=6))
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        wait_until(lambda: "grant the right" in running.state.problem)
        running.wait_published()
        assert running.recorder.counted("publish_failures_total", kind="refused") == 6
        tries = [each.at_s for each in server.requests() if each.verb == "list"]
        pauses = [later - earlier for earlier, later in pairwise(tries[:7])]
        # Each is shortened at random by up to a half.
        assert min(pauses[4:]) >= FAST.refused_s / 2
        assert max(pauses) < FAST.refused_s + 0.5


def test_publisher_comes_back_soon_when_a_starting_server_does_not_know_its_rights_yet(
    server: SimApiServer, kubeconfig: Path
) -> None:
    timing = replace(FAST, refused_s=60.0)
    with Running(kubeconfig=kubeconfig, inventory=node(1), timing=timing) as running:
        running.wait_published()
        server.faults.add(
            Fault(resource="version", status=403, reason="Forbidden", times=2),
        )
        server.stop()
        running.set(node(2))
        server.start()
        wait_until(lambda: len(devices(server)) == 4, timeout_s=5.0)
        assert server.faults.pending() == 0
