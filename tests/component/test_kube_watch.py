"""Watches over connections that stall."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

import pytest
import urllib3
from urllib3.connection import HTTPConnection

from dra_driver.adapters.kube_transport import Transport
from dra_driver.errors import AdapterError
from dra_driver.sim.api_faults import Fault
from dra_driver.sim.api_server import SimApiServer
from tests import builders
from tests.component.publishing import Running, node, wait_until
from tests.contract.kube_suite import Follower

NODES = "/api/v1/nodes"


class Nobody:
    def headers(self) -> Mapping[str, str]:
        return {}

    def renew(self) -> None:
        pass


@pytest.fixture
def server() -> Iterator[SimApiServer]:
    with SimApiServer() as server:
        server.create_node(builders.NODE)
        yield server


@pytest.fixture
def transport(server: SimApiServer) -> Iterator[Transport]:
    with urllib3.PoolManager() as pool:
        yield Transport(
            server.url,
            pool=pool,
            credentials=Nobody(),
            user_agent="tests",
            answer_timeout_s=0.3,
        )


def test_watch_goes_on_when_the_server_is_silent_for_long(
    server: SimApiServer, transport: Transport
) -> None:
    version = server.get("nodes", builders.NODE)["metadata"]["resourceVersion"]
    watch = Follower(
        transport.watch(
            NODES, what="watch Nodes", query={"resourceVersion": version}, timeout_s=30.0
        )
    )
    watch._thread.join(1.0)
    assert watch.error is None
    server.create_node("node-b")
    watch.wait_for("ADDED")
    watch.close()


def test_watch_fails_soon_when_the_server_does_not_begin_it(
    server: SimApiServer, transport: Transport
) -> None:
    server.faults.add(Fault(verb="watch", delay_s=60.0))
    started = time.monotonic()
    with pytest.raises(AdapterError, match="no answer"):
        transport.watch(NODES, what="watch Nodes", query={}, timeout_s=30.0)
    assert time.monotonic() - started < 2.0


def test_publisher_leaves_no_thread_or_descriptor_when_it_ends(
    server: SimApiServer, tmp_path: Path
) -> None:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")

    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    watching = Event()
    counts: list[tuple[int, int]] = []
    for _ in range(3):
        with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
            running.wait_published()
            watching.wait(0.3)
        if counts:
            # The server, which is in this process too, notices a little later.
            wait_until(lambda: held() <= counts[0])
        else:
            watching.wait(1.5)
        counts.append(held())


def test_watch_that_is_closed_before_anybody_reads_it_leaves_no_connection(
    server: SimApiServer, transport: Transport
) -> None:
    version = server.get("nodes", builders.NODE)["metadata"]["resourceVersion"]
    query = {"resourceVersion": version}
    watch = transport.watch(NODES, what="watch Nodes", query=query, timeout_s=30.0)
    connection = watch._response.connection
    watch.close()
    assert isinstance(connection, HTTPConnection)
    assert connection.sock is None
    assert list(watch) == []
