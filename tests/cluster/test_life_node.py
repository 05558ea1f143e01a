"""What becomes of pods when parts of their node end and start again."""

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Iterator

import pytest
import yaml

from tests.cluster import deployed
from tests.cluster.life_node import Holdings, kubelet_answers, wait_until_settled
from tests.cluster.life_plugin import (
    plugin_container,
    published_slices,
    renew_plugin,
    replace_plugin,
    wait_slices_renewed,
)
from tests.cluster.life_processes import kill
from tests.cluster.life_site import WHOLE, Site, part
from tests.kube.cluster import COMPONENTS, Cluster
from tests.kube.process import wait_until

_NEXT_BOOT_ID = "22222222-2222-4222-8222-222222222222"


def test_pods_keep_what_they_hold_and_new_ones_start_when_the_kubelet_restarts(
    site: Site,
) -> None:
    cluster = site.cluster
    site.create("slice", part(25, "6Gi"))
    site.create("whole", WHOLE)
    tenants = site.started("slice"), site.started("whole")
    slices, devices = published_slices(cluster), deployed.published(cluster)
    specs = Holdings.of(cluster).specs
    cluster.restart_kubelet()
    # A kubelet that starts deletes all slices of its node.
    wait_slices_renewed(cluster, old=slices, devices=devices)
    site.start("new", part(25, "6Gi"))
    site.unchanged(*tenants)
    assert specs.items() <= Holdings.of(cluster).specs.items()
    wait_until_settled(cluster)
    site.delete("whole")
    site.wait_gone("whole")
    wait_until_settled(cluster)


def test_plugin_comes_back_with_the_same_answers_when_it_is_killed(site: Site) -> None:
    cluster = site.cluster
    renew_plugin(cluster)
    site.create_claim("shared", part(10, "1Gi"))
    site.create_with("first", "shared")
    site.create("goes", WHOLE)
    first, _ = site.started("first"), site.started("goes")
    uid = site.claim("shared")["metadata"]["uid"]
    specs, devices = Holdings.of(cluster).specs, deployed.published(cluster)

    killed = plugin_container(cluster)
    kill(cluster, killed)
    site.create("meanwhile", part(25, "6Gi"))
    site.delete("goes")
    site.started("meanwhile")
    site.wait_gone("goes")
    assert plugin_container(cluster) != killed
    assert deployed.published(cluster) == devices
    # Nobody asks it to prepare what is in use: it has to know by itself.
    wait_until_settled(cluster)

    # Only a kubelet that has started anew asks again about a claim that is prepared.
    cluster.restart_kubelet()
    site.create_with("second", "shared")
    assert site.started("second").environment == first.environment
    answers = kubelet_answers(cluster, uid)
    assert len(answers) == 2, "1.34 keeps both answers"
    assert answers[0] == answers[1]
    assert Holdings.of(cluster).specs[uid] == specs[uid]
    site.unchanged(first)
    wait_until_settled(cluster)


@pytest.fixture
def bootable(deployed_gates: Cluster) -> Iterator[Cluster]:
    """A node whose boot id may be changed: it gets its own again once nothing runs on it."""
    file = deployed_gates.node_path(deployed._SIMULATED_FILE)
    before = yaml.safe_load(file.read_text())
    yield deployed_gates
    deployed.set_simulated(deployed_gates, before)
    replace_plugin(deployed_gates)


def test_pods_start_again_with_what_they_held_when_the_node_reboots(
    bootable: Cluster, site: Site
) -> None:
    site.create("slice", part(25, "6Gi"), restartPolicy="Always")
    site.create("whole", WHOLE, restartPolicy="Always")
    site.create("once", part(25, "6Gi"))
    slice_, whole, _ = [site.started(name) for name in ("slice", "whole", "once")]
    devices = deployed.published(bootable)
    reboot(bootable)
    for tenant in (slice_, whole):
        site.wait_restarted(tenant)
        assert site.started(tenant.name).environment == tenant.environment
    wait_until(
        lambda: "" if (phase := site.phase("once")) == "Failed" else phase,
        waiting_for="the end of the pod that does not start again",
    )
    wait_until_settled(bootable)
    boots = {record["bootId"] for record in Holdings.of(bootable).records.values()}
    assert boots == {_NEXT_BOOT_ID}
    site.start("new", part(25, "6Gi"))
    assert deployed.published(bootable) == devices
    wait_until_settled(bootable)


def reboot(cluster: Cluster) -> None:
    """End all that runs on the node, at once, and start it with what outlives a reboot.

    The control plane stays: it would be on other machines.
    """
    cluster.cell.daemons.kill("kubelet")
    cluster.cell.daemons.kill("containerd")
    kept = {cluster.pid(component) for component in (*COMPONENTS, "mounts")}
    for pid in set(cluster.cell.cgroups.pids()) - kept:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder in ("/run/cdi", "/run/gpuslice"):
        for path in cluster.node_path(folder).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    file = cluster.node_path(deployed._SIMULATED_FILE)
    node = yaml.safe_load(file.read_text())
    deployed.set_simulated(cluster, {**node, "bootId": _NEXT_BOOT_ID})
    cluster.start("containerd")
    wait_until(
        lambda: _refusal(cluster, "/run/containerd/containerd.sock"),
        waiting_for="containerd's socket",
    )
    cluster.restart_kubelet()


def _refusal(cluster: Cluster, path: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(cluster.node_path(path)))
        except OSError as error:
            return str(error)
    return ""
