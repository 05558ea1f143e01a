"""Fixtures: a node that checkpoints and restores, with and without the driver's hook."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.checkpoint_cuda import (
    DRIVER_SETTINGS,
    CudaPlugin,
    cuda_plugin,
    plugin_line,
)
from tests.cluster.checkpoint_hook import Hook
from tests.cluster.checkpoint_script import ActionScript
from tests.cluster.checkpoint_site import Checkpoints
from tests.cluster.deployed import deploy
from tests.cluster.life_site import site_on
from tests.kube.build import criu_folder
from tests.kube.cluster import Cluster
from tests.kube.criu import (
    allow_checkpoints,
    clear_criu,
    configure_criu,
    install_criu,
)

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def criu_built(pytestconfig: pytest.Config) -> None:
    """Build CRIU if it is missing, with its progress on the terminal."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        criu_folder()


@pytest.fixture(scope="session")
def criu_on_node(criu_built: None, cluster_checkpoints: Cluster, driver_image: Path) -> Cluster:
    """A cluster whose driver offers shares, on a node with CRIU."""
    deploy(cluster_checkpoints, image=driver_image, simulate="8xh100-80gb")
    install_criu(cluster_checkpoints)
    clear_criu(cluster_checkpoints)
    allow_checkpoints(cluster_checkpoints.admin)
    return cluster_checkpoints


@pytest.fixture
def checkpoints(criu_on_node: Cluster) -> Iterator[Checkpoints]:
    """Checkpoints of pods of a new namespace, of which nothing is left after the test."""
    with site_on(criu_on_node, f"checkpoint-{next(_numbers)}") as site:
        checkpoints = Checkpoints(site=site)
        yield checkpoints
        checkpoints.remove()


@pytest.fixture
def cuda(criu_on_node: Cluster, script: ActionScript) -> Iterator[CudaPlugin]:
    """CRIU with its plugin for CUDA, beside the script."""
    configure_criu(criu_on_node, plugin_line(), f"action-script {script.path}")
    with cuda_plugin(criu_on_node) as plugin:
        yield plugin


@pytest.fixture
def script(criu_on_node: Cluster) -> Iterator[ActionScript]:
    """A script that CRIU calls on the node."""
    with _script_on(criu_on_node) as script:
        configure_criu(criu_on_node, f"action-script {script.path}")
        yield script
        clear_criu(criu_on_node)


@pytest.fixture(scope="session")
def hook(criu_on_node: Cluster) -> Iterator[Hook]:
    """The hook of the driver, which stays until it is taken away at the end.

    Tests without it have to be over: what it writes to CRIU's configuration they would remove.
    """
    deploy_hook(criu_on_node)
    hook = Hook(cluster=criu_on_node)
    hook.wait_installed()
    yield hook
    deploy(criu_on_node, simulate="8xh100-80gb", components=("checkpoint-hook-off",))


@pytest.fixture
def cuda_hook(hook: Hook) -> Iterator[CudaPlugin]:
    """CRIU with its plugin for CUDA, beside the hook."""
    with hook.beside(plugin_line()), cuda_plugin(hook.cluster) as plugin:
        yield plugin


@pytest.fixture
def other_script(hook: Hook) -> Iterator[ActionScript]:
    """A script that CRIU calls in each action, before the hook."""
    with _script_on(hook.cluster) as script, hook.beside(f"action-script {script.path}"):
        yield script


def deploy_hook(cluster: Cluster, *components: str) -> None:
    """Install the driver with its hook and what its commands need on the node, and more."""
    deploy(
        cluster,
        simulate="8xh100-80gb",
        components=("checkpoint-hook", "checkpoint-archives", *components),
        settings=DRIVER_SETTINGS,
    )


@contextmanager
def _script_on(cluster: Cluster) -> Iterator[ActionScript]:
    script = ActionScript.install(cluster)
    yield script
    shutil.rmtree(script.folder)
