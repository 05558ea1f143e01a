from pathlib import Path

import pytest

from tests.cluster.checkpoint_fixtures import (
    checkpoints,
    criu_built,
    criu_on_node,
    cuda,
    cuda_hook,
    hook,
    other_script,
    script,
)
from tests.cluster.driver_fixtures import (
    deployed_gates,
    deployed_newest,
    deployed_static,
    driver,
    driver_gates,
    driver_newest,
    driver_static,
    new_namespace,
)
from tests.cluster.life_fixtures import site
from tests.cluster.mps_fixtures import deployed_mps, mps_node, mps_programs, mps_site
from tests.cluster.workers import (
    arrange,
    pytest_configure_node,
    pytest_unconfigure,
    pytest_xdist_make_scheduler,
)
from tests.kube.cluster_fixtures import (
    cluster_checkpoints,
    cluster_default,
    cluster_folder,
    cluster_gates,
    cluster_mps,
    cluster_newest,
    clusters_built,
    driver_image,
    pytest_runtest_makereport,
)

__all__ = [
    "checkpoints",
    "cluster_checkpoints",
    "cluster_default",
    "cluster_folder",
    "cluster_gates",
    "cluster_mps",
    "cluster_newest",
    "clusters_built",
    "criu_built",
    "criu_on_node",
    "cuda",
    "cuda_hook",
    "deployed_gates",
    "deployed_mps",
    "deployed_newest",
    "deployed_static",
    "driver",
    "driver_gates",
    "driver_image",
    "driver_newest",
    "driver_static",
    "hook",
    "mps_node",
    "mps_programs",
    "mps_site",
    "new_namespace",
    "other_script",
    "pytest_configure_node",
    "pytest_runtest_makereport",
    "pytest_unconfigure",
    "pytest_xdist_make_scheduler",
    "script",
    "site",
]


_TIMEOUT_S = 240
"""None takes so long, not even on cores that are busy with something else, unless it hangs."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark and order this folder's tests, and leave builds and starts out of their time limit."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    for item in here:
        item.add_marker("cluster")
        item.add_marker("root")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S, func_only=True))
    arrange(config, here)
    items[:] = [item for item in items if Path(__file__).parent not in item.path.parents] + here
