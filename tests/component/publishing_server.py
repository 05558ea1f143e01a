"""Fixtures and questions of the publisher's tests on the simulated API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.sim.api_profiles import V1_37
from dra_driver.sim.api_server import SimApiServer
from tests import builders

SLICES = "resourceslices"


@pytest.fixture
def server() -> Iterator[SimApiServer]:
    with SimApiServer(V1_37) as server:
        server.create_node(builders.NODE)
        yield server


@pytest.fixture
def kubeconfig(server: SimApiServer, tmp_path: Path) -> Path:
    return server.write_kubeconfig(tmp_path / "kubeconfig")


def devices(server: SimApiServer) -> list[Any]:
    return [device for each in server.list(SLICES) for device in each["spec"].get("devices") or ()]


def attempts(server: SimApiServer, verb: str) -> list[float]:
    """When clients tried to write slices; monotonic seconds."""
    return [
        each.at_s
        for each in server.requests()
        if (each.verb, each.resource) == (verb, SLICES) and not each.dry_run
    ]


def quiet(server: SimApiServer, *, for_s: float = 1.0) -> None:
    """Nothing is written for a while."""
    before = server.writes()
    threading.Event().wait(for_s)
    assert server.writes() == before


def watches(server: SimApiServer) -> list[Any]:
    return [each for each in server.requests() if each.verb == "watch"]
