"""Fixtures: clusters for all tests of a session that need the same.

Clusters are shared: a test takes names of its own instead of cleaning up for others. One that stops
or upgrades something starts a cluster of its own.

Where a session has several workers, each has its own of the clusters that its tests need.
"""

import fcntl
import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.kube.build import KUBERNETES_VERSION, clusters_folder
from tests.kube.cluster import Cluster
from tests.kube.cluster_state import ClusterState
from tests.kube.profiles import DEFAULT, GATES, Profile
from tests.kube.shared import made_once

NEWEST_VERSION = "1.37.2"

_HACK = Path(__file__).parents[2] / "hack"
_RUNNING = pytest.StashKey[list[Cluster]]()


@pytest.fixture(scope="session")
def clusters_built(request: pytest.FixtureRequest) -> None:
    """Install and build what is missing, with its progress on the terminal: it takes minutes."""

    def build(done: Path) -> None:
        end_orphans()
        for version in (KUBERNETES_VERSION, NEWEST_VERSION):
            subprocess.run([_HACK / "cluster", "prepare", "--kubernetes", version], check=True)
        done.touch()

    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        made_once(request, "clusters-built", build)


@pytest.fixture(scope="session")
def cluster_default(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of the oldest version with its default gates: whole devices only."""
    yield from _serve(pytestconfig, "default", KUBERNETES_VERSION, DEFAULT)


@pytest.fixture(scope="session")
def cluster_gates(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of the oldest version with the gates for sharing devices."""
    yield from _serve(pytestconfig, "gates", KUBERNETES_VERSION, GATES)


@pytest.fixture(scope="session")
def cluster_checkpoints(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Another one like `cluster_gates`, for a node that checkpoints containers."""
    yield from _serve(pytestconfig, "checkpoints", KUBERNETES_VERSION, GATES)


@pytest.fixture(scope="session")
def cluster_mps(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """Another one like `cluster_gates`, for a node with control daemons of MPS."""
    yield from _serve(pytestconfig, "mps", KUBERNETES_VERSION, GATES)


@pytest.fixture(scope="session")
def cluster_newest(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of the newest version with its default gates."""
    yield from _serve(pytestconfig, "newest", NEWEST_VERSION, DEFAULT)


@pytest.fixture(scope="session")
def driver_image(request: pytest.FixtureRequest) -> Path:
    """The archive of this checkout's image, whose name for pods is ``gpuslice:dev``."""

    def write(target: Path) -> None:
        script = _HACK / "image"
        subprocess.run([script, "--output", target], stdout=subprocess.DEVNULL, check=True)

    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return made_once(request, "gpuslice.tar", write)


@pytest.fixture
def cluster_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder for a test's own cluster, which is ended after the test in any case."""
    folder = clusters_folder() / f"test-{os.getpid()}-own"
    yield folder
    Cluster(folder).down()


def end_orphans() -> None:
    """End clusters of sessions that were killed."""
    clusters_folder().mkdir(parents=True, exist_ok=True)
    descriptor = os.open(clusters_folder(), os.O_RDONLY | os.O_DIRECTORY)
    try:
        # Another session may have come to do the same.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for folder in clusters_folder().glob("*"):
            state = ClusterState.load(folder)
            if state is not None and state.orphaned:
                Cluster(folder).down()
    finally:
        os.close(descriptor)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the node's logs under a failed test: they go with the cluster."""
    report = yield
    if report.failed:
        for cluster in item.config.stash.get(_RUNNING, []):
            for name in ("kubelet", "containerd", "kube-scheduler"):
                title = f"{name} of {cluster.folder.name}"
                report.sections.append((title, cluster.cell.daemons.log_tail(name)))
    return report


def _serve(config: pytest.Config, name: str, version: str, profile: Profile) -> Iterator[Cluster]:
    # Sessions, and their workers, run side by side.
    folder = clusters_folder() / f"test-{os.getpid()}-{name}"
    running = config.stash.setdefault(_RUNNING, [])
    with Cluster(folder, version=version, profile=profile) as cluster:
        running.append(cluster)
        yield cluster
        running.remove(cluster)
