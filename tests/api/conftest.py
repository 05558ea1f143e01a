from pathlib import Path

import pytest

from tests.kube.fixtures import api_default, api_gates, kubectl, kubernetes_built

__all__ = ["api_default", "api_gates", "kubectl", "kubernetes_built"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark this folder's tests, and leave the first one's build out of its time limit."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker("api")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(120, func_only=True))
