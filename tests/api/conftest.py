from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.build import kubernetes_binary
from tests.kube.cluster_fixtures import NEWEST_VERSION
from tests.kube.fixtures import api_default, api_gates, kubectl, kubernetes_built
from tests.kube.harness import ApiServer

__all__ = ["api_default", "api_gates", "kubectl", "kubernetes_built"]


@pytest.fixture(scope="session")
def api_newest(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """An API server of the newest version, from the binary that clusters have, too."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        kubernetes_binary(NEWEST_VERSION, whole_cluster=True)
    folder = tmp_path_factory.mktemp("api-newest")
    with ApiServer(folder, version=NEWEST_VERSION, whole_cluster=True) as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests, and leave the first one's build out of its time limit."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker("api")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(120, func_only=True))
