"""Fixtures: simulated GPUs whose shares real MPS control daemons hold."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.deployed import (
    attribute,
    deploy,
    set_simulated,
    simulated_document,
    wait_published,
)
from tests.cluster.life_site import Site, site_on
from tests.cluster.mps_node import PROGRAM, MpsNode
from tests.kube.build import mps_driver_root
from tests.kube.client import Json
from tests.kube.cluster import Cluster

RELEASE = "550.163.01"
GPUS = 4

_numbers = itertools.count(1)


def mps_document(cluster: Cluster, **more: object) -> Json:
    """Describe the node's GPUs and driver, of the release whose daemon is real.

    A daemon is known by its GPU, and mpsd sees those of other clusters of the machine.
    """
    driver = ".".join(str(int(number)) for number in RELEASE.split("."))
    gpus = [{"uuid": f"GPU-{cluster.cell.id}-{index}"} for index in range(GPUS)]
    return {"driverVersion": driver, "gpus": gpus, **more}


@pytest.fixture(scope="session")
def mps_programs(pytestconfig: pytest.Config) -> Path:
    """The folder of the release's control program."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return mps_driver_root(RELEASE) / "usr/bin"


@pytest.fixture(scope="session")
def deployed_mps(cluster_mps: Cluster, driver_image: Path, mps_programs: Path) -> Cluster:
    """The driver with mpsd, which needs a node of its own: plugins that simulate MPS let nobody else."""
    deploy_mps(cluster_mps, mps_programs, image=driver_image)
    return cluster_mps


@pytest.fixture
def mps_node(deployed_mps: Cluster, mps_programs: Path) -> MpsNode:
    return MpsNode(cluster=deployed_mps, programs=mps_programs)


@pytest.fixture
def mps_site(mps_node: MpsNode) -> Iterator[Site]:
    """A new namespace, of whose pods nothing may be left on the node after the test.

    The simulated GPUs are as before then, too.
    """
    with site_on(mps_node.cluster, f"mps-{next(_numbers)}") as site:
        yield site
        # Nothing that was simulated may hold up the end of pods.
        calm = {**simulated_document(mps_node.cluster), "faults": [], "processes": []}
        set_simulated(mps_node.cluster, calm)
    set_simulated(mps_node.cluster, mps_document(mps_node.cluster))


def deploy_mps(
    cluster: Cluster,
    programs: Path,
    *,
    image: Path | None = None,
    settings: dict[str, str] | None = None,
) -> None:
    """Install both parts, with `settings` of the plugin beside those of all tests."""
    deploy(
        cluster,
        image=image,
        overlay="simulated-mps",
        simulate=mps_document(cluster),
        settings={"watchdog-interval-seconds": "1", **(settings or {})},
        mpsd_settings={"mps-control-path": f"/host{programs / PROGRAM}"},
    )
    wait_published(cluster, until=_are_shareable)


def _are_shareable(devices: tuple[Json, ...]) -> bool:
    tiers = [attribute(each, "tier") for each in devices if attribute(each, "type") == "gpu"]
    return tiers.count("standard") >= GPUS
