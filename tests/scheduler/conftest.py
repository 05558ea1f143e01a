from __future__ import annotations

import pytest

from tests.kube.build import kubernetes_binary
from tests.scheduler.values import TARGETS


@pytest.fixture(scope="session")
def schedulers_built(pytestconfig: pytest.Config) -> None:
    """Build what is missing, with its progress on the terminal: it takes minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for version in sorted({target.version for target in TARGETS}):
            kubernetes_binary(version, whole_cluster=True)
