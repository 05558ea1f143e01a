"""Fixtures: the driver in each of the session's clusters, and namespaces for tests.

A test leaves the driver and its node as it found them; its pods go with its namespace.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.deployed import deploy
from tests.cluster.tenants import clear
from tests.kube.cluster import Cluster
from tests.kube.objects import create_namespace
from tests.kube.process import wait_until

STATIC_LAYOUT = "whole,0=10x10,1=4x25,2=2x50,3=2x25+5x10"
"""Of the eight GPUs of the cluster without shares: four are cut, the others stay whole."""

NewNamespace = Callable[[Cluster], str]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def deployed_gates(cluster_gates: Cluster, driver_image: Path) -> Cluster:
    deploy(cluster_gates, image=driver_image, simulate="8xh100-80gb")
    return cluster_gates


@pytest.fixture(scope="session")
def deployed_static(cluster_default: Cluster, driver_image: Path) -> Cluster:
    deploy(
        cluster_default,
        image=driver_image,
        simulate="8xh100-80gb",
        static_layout=STATIC_LAYOUT,
    )
    return cluster_default


@pytest.fixture(scope="session")
def deployed_newest(cluster_newest: Cluster, driver_image: Path) -> Cluster:
    deploy(
        cluster_newest,
        image=driver_image,
        simulate="8xh100-80gb",
        components=("extended-resource",),
    )
    return cluster_newest


@pytest.fixture
def driver_gates(deployed_gates: Cluster) -> Iterator[Cluster]:
    """The driver on the oldest version with the gates for shares, on a node of eight H100."""
    yield from _watch_scheduler(deployed_gates)


@pytest.fixture
def driver_static(deployed_static: Cluster) -> Iterator[Cluster]:
    """The driver on the oldest version as it is: whole GPUs and slots, by STATIC_LAYOUT."""
    yield from _watch_scheduler(deployed_static)


@pytest.fixture
def driver_newest(deployed_newest: Cluster) -> Iterator[Cluster]:
    """The driver on the newest version, also for pods that ask for nvidia.com/gpu."""
    yield from _watch_scheduler(deployed_newest)


@pytest.fixture(params=["driver_gates", "driver_newest"])
def driver(request: pytest.FixtureRequest) -> Cluster:
    """The driver on each version that shares GPUs."""
    cluster: Cluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture
def new_namespace(request: pytest.FixtureRequest) -> Iterator[NewNamespace]:
    """Makes namespaces, which are gone with all that they held when the test is over."""
    made: list[tuple[Cluster, str]] = []

    def make(cluster: Cluster) -> str:
        name = f"team-{next(_numbers)}"
        create_namespace(cluster.admin, name)
        made.append((cluster, name))
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        wait_until(
            lambda: "" if cluster.admin.list(path) else "none",
            waiting_for=f"the ServiceAccount of namespace {name}",
        )
        return name

    yield make
    for cluster, name in made:
        clear(cluster, name)


def _watch_scheduler(cluster: Cluster) -> Iterator[Cluster]:
    """No claim may end the scheduler, as some end that of 1.34."""
    pid = cluster.scheduler_pid()
    assert pid is not None
    yield cluster
    assert cluster.scheduler_pid() == pid, "the scheduler has ended"
