"""Fixtures: a node that checkpoints and restores, with and without the driver's hook."""

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.checkpoint_cuda import CudaPlugin, cuda_plugin
from tests.cluster.checkpoint_script import ActionScript
from tests.cluster.checkpoint_site import Checkpoints
from tests.cluster.life_site import site_on
from tests.kube.build import criu_folder
from tests.kube.cluster import Cluster
from tests.kube.criu import allow_checkpoints, configure_criu, install_criu, remove_criu

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def criu_built(pytestconfig: pytest.Config) -> None:
    """Build CRIU if it is missing, with its progress on the terminal."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        criu_folder()


@pytest.fixture(scope="session")
def criu_on_node(criu_built: None, deployed_gates: Cluster) -> Iterator[Cluster]:
    """The cluster whose driver offers shares, on a node with CRIU."""
    install_criu(deployed_gates)
    allow_checkpoints(deployed_gates.admin)
    yield deployed_gates
    remove_criu(deployed_gates)


@pytest.fixture
def checkpoints(criu_on_node: Cluster) -> Iterator[Checkpoints]:
    """Checkpoints of pods of a new namespace, of which nothing is left after the test."""
    with site_on(criu_on_node, f"checkpoint-{next(_numbers)}") as site:
        checkpoints = Checkpoints(site=site)
        yield checkpoints
        checkpoints.remove()


@pytest.fixture
def cuda(criu_on_node: Cluster, script: ActionScript, tmp_path: Path) -> Iterator[CudaPlugin]:
    """CRIU with its plugin for CUDA, beside the script."""
    with cuda_plugin(criu_on_node, tmp_path, f"action-script {script.path}") as plugin:
        yield plugin


@pytest.fixture
def script(criu_on_node: Cluster) -> Iterator[ActionScript]:
    """A script that CRIU calls on the node."""
    script = ActionScript.install(criu_on_node)
    configure_criu(criu_on_node, f"action-script {script.path}")
    yield script
    configure_criu(criu_on_node)
    shutil.rmtree(script.folder)
