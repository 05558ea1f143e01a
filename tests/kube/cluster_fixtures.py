"""Fixtures: one cluster per version and profile, for all tests of a session.

Clusters are shared: a test takes names of its own instead of cleaning up for others. One that stops
or upgrades something starts a cluster of its own.
"""

import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.kube.build import KUBERNETES_VERSION, clusters_folder
from tests.kube.cluster import Cluster
from tests.kube.cluster_state import ClusterState
from tests.kube.profiles import DEFAULT, GATES, Profile

NEWEST_VERSION = "1.37.2"

_HACK = Path(__file__).parents[2] / "hack"
_RUNNING = pytest.StashKey[list[Cluster]]()


@pytest.fixture(scope="session")
def clusters_built(pytestconfig: pytest.Config) -> None:
    """Install and build what is missing, with its progress on the terminal: it takes minutes."""
    end_orphans()
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for version in (KUBERNETES_VERSION, NEWEST_VERSION):
            subprocess.run([_HACK / "cluster", "prepare", "--kubernetes", version], check=True)


@pytest.fixture(scope="session")
def cluster_default(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of the oldest version with its default gates: whole devices only."""
    yield from _serve(pytestconfig, KUBERNETES_VERSION, DEFAULT)


@pytest.fixture(scope="session")
def cluster_gates(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of the oldest version with the gates for sharing devices."""
    yield from _serve(pytestconfig, KUBERNETES_VERSION, GATES)


@pytest.fixture(scope="session")
def cluster_newest(clusters_built: None, pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A cluster of the newest version with its default gates."""
    yield from _serve(pytestconfig, NEWEST_VERSION, DEFAULT)


@pytest.fixture(scope="session")
def driver_image(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of this checkout's image, whose name for pods is ``gpuslice:dev``."""
    target = tmp_path_factory.mktemp("image") / "gpuslice.tar"
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        subprocess.run([_HACK / "image", "--output", target], stdout=subprocess.DEVNULL, check=True)
    return target


@pytest.fixture
def cluster_folder(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The folder for a test's own cluster, which is ended after the test in any case."""
    folder = clusters_folder() / f"test-{os.getpid()}-own"
    yield folder
    Cluster(folder).down()


def end_orphans() -> None:
    """End clusters of sessions that were killed."""
    for folder in clusters_folder().glob("*"):
        state = ClusterState.load(folder)
        if state is not None and state.orphaned:
            Cluster(folder).down()


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


def _serve(config: pytest.Config, version: str, profile: Profile) -> Iterator[Cluster]:
    # Sessions may run side by side.
    folder = clusters_folder() / f"test-{os.getpid()}-{version}-{profile.name}"
    running = config.stash.setdefault(_RUNNING, [])
    with Cluster(folder, version=version, profile=profile) as cluster:
        running.append(cluster)
        yield cluster
        running.remove(cluster)
