"""Fixtures: one API server per profile and test session.

Servers are shared: a test takes names of its own (nodes, and cluster-wide objects after them)
instead of cleaning up for others. A test that stops or reconfigures a server starts its own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.build import KUBERNETES_VERSION, kubernetes_binary
from tests.kube.harness import DEFAULT, GATES, ApiServer, Profile


@pytest.fixture(scope="session")
def kubernetes_built(pytestconfig: pytest.Config) -> None:
    """Build the binary where it is missing, with its progress on the terminal: it takes minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        kubernetes_binary(KUBERNETES_VERSION)


@pytest.fixture(scope="session")
def kubectl(pytestconfig: pytest.Config) -> Path:
    """Give the binary that has kubectl in it, built as above: in twice the time."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return kubernetes_binary(KUBERNETES_VERSION, whole_cluster=True)


@pytest.fixture(scope="session")
def api_default(
    kubernetes_built: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server with the version's default gates."""
    yield from _serve(DEFAULT, tmp_path_factory)


@pytest.fixture(scope="session")
def api_gates(
    kubernetes_built: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server with the DRA gates on that newer versions have on by default."""
    yield from _serve(GATES, tmp_path_factory)


def _serve(profile: Profile, folders: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(folders.mktemp(f"api-{profile.name}"), profile) as server:
        yield server
