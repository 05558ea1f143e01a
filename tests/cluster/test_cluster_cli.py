"""hack/cluster as people use it."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.test_cluster_traces import traces
from tests.kube.build import clusters_folder
from tests.kube.cluster import COMPONENTS, Cluster

_EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
_SCRIPT = Path(__file__).parents[2] / "hack" / "cluster"


def hack_cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_SCRIPT, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def name() -> Iterator[str]:
    name = f"test-{os.getpid()}-cli"
    yield name
    Cluster(clusters_folder() / name).down()


def test_cluster_goes_up_beside_others_shows_what_runs_and_goes_down(
    cluster_default: Cluster, name: str
) -> None:
    up = hack_cluster("up", "--profile", "gates", "--name", name)
    assert up.returncode == 0, up.stderr
    kubeconfig = up.stdout.splitlines()[0].removeprefix("export KUBECONFIG=")
    assert Path(kubeconfig).is_file()
    second = hack_cluster("up", "--name", name)
    assert second.returncode == 1
    assert f"there is a cluster '{name}'" in second.stderr

    status = hack_cluster("status", "--name", name)
    assert status.returncode == 0
    for component in COMPONENTS:
        assert f"{component} " in status.stdout
    Cluster(clusters_folder() / name).stop("kube-scheduler")
    status = hack_cluster("status", "--name", name)
    assert status.returncode == 1
    assert "does not run" in status.stdout

    down = hack_cluster("down", "--name", name)
    assert down.returncode == 0
    assert f"'{name}' is gone" in down.stderr
    assert not (clusters_folder() / name).exists()
    assert cluster_default.kubectl("get", "nodes", "-o", "name") == "node/node-0\n"


def test_cluster_with_the_driver_runs_a_recipe_and_leaves_nothing_when_it_goes_down(
    name: str,
) -> None:
    folder = clusters_folder() / name
    before = traces(folder)
    options = ("--profile", "gates", "--simulate", "2xt4", "--checkpoint")
    up = hack_cluster("up", *options, "--name", name)
    assert up.returncode == 0, up.stderr
    cluster = Cluster.find(folder)
    assert cluster is not None
    slices = cluster.kubectl("get", "resourceslices", "-o", "jsonpath={.items[*].spec.driver}")
    assert slices == "gpuslice.io"
    # Its driver is below 550, whose tenants could lift their limits: whole GPUs it has.
    cluster.kubectl("apply", "-f", str(_EXAMPLES / "whole-gpu.yaml"))
    cluster.kubectl("wait", "pod", "--all", "--for=condition=Ready", "--timeout=50s")
    (pod,) = cluster.kubectl("get", "pods", "-o", "name").split()
    path = f"proxy/checkpoint/default/{pod.removeprefix('pod/')}/main"
    cluster.admin.request("POST", f"/api/v1/nodes/{cluster.node_name}/{path}")
    # The driver, its pod and what was simulated are there until the end.
    assert hack_cluster("down", "--name", name).returncode == 0
    kept = traces(folder) - before
    # What is gone at a second look was another cluster's.
    assert kept & traces(folder) == frozenset()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((), 2, "Usage: hack/cluster up"),
        (("up", "--name", "../x"), 2, "'../x' is no name for a cluster"),
        (("up", "--kubernetes", "1.0.0"), 2, "invalid choice: '1.0.0' (choose from"),
        (("up", "--simulate", "many"), 2, "invalid choice: 'many' (choose from '2xt4'"),
        (("load", "/no/such.tar"), 1, "there is no file /no/such.tar"),
        (("down", "--name", "no-such"), 0, "there is no 'no-such'"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    arguments: tuple[str, ...], status: int, message: str
) -> None:
    done = hack_cluster(*arguments)
    assert done.returncode == status
    assert message in done.stderr
