"""What becomes of shares while the plugin, mpsd or an MPS control daemon ends."""

import json
import os
import signal

import pytest

from dra_driver.model.mps import MpsPhase
from tests.cluster import deployed
from tests.cluster.deployed import SLICES, set_simulated
from tests.cluster.life_node import wait_until_settled
from tests.cluster.life_plugin import of_node, plugin_container, plugins, update
from tests.cluster.life_processes import kill
from tests.cluster.life_site import Site, Tenant, part
from tests.cluster.mps_fixtures import mps_document
from tests.cluster.mps_node import TIMEOUT_S, MpsNode, gpu_of
from tests.cluster.mps_tenants import (
    ask_inside,
    limits_inside,
    socket_inside,
    sockets_inside,
    start_all,
    with_program,
)
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until

pytestmark = pytest.mark.timeout(300, func_only=True)

_SMALL, _LARGE = part(25, "6Gi"), part(40, "20Gi")
_LEAST = part(10, "4Gi")
_CEILINGS = ("40.0", "20G")


def test_daemon_and_shares_stay_while_the_plugin_is_killed_and_replaced(
    mps_site: Site, mps_node: MpsNode
) -> None:
    cluster = mps_node.cluster
    *tenants, _ = start_all(mps_site, small=_SMALL, large=_LARGE, goes=_LEAST)
    gpu = gpu_of(tenants[0])
    life = mps_node.life(gpu)
    container = plugin_container(cluster)
    kill(cluster, container)
    wait_until(
        lambda: "" if plugin_container(cluster) != container else container,
        waiting_for="another container of the plugin",
        timeout_s=TIMEOUT_S,
    )
    deployed.wait_deployed(cluster)
    _assert_same(mps_site, mps_node, tenants, gpu=gpu, life=life)
    with update(cluster):
        wait_until(
            lambda: "" if len(plugins(cluster)) == 2 else f"only {plugins(cluster)}",
            waiting_for="the pods of both plugins to be ready",
            timeout_s=TIMEOUT_S,
        )
        # Whichever of them the kubelet calls.
        mps_site.delete("goes")
        mps_site.start("comes", _LEAST)
        mps_site.wait_gone("goes")
        _assert_same(mps_site, mps_node, tenants, gpu=gpu, life=life)
    deployed.wait_deployed(cluster)
    _assert_same(mps_site, mps_node, tenants, gpu=gpu, life=life)
    wait_until_settled(cluster)


def test_a_new_supervisor_adopts_the_daemon_when_the_old_one_is_killed(
    mps_site: Site, mps_node: MpsNode
) -> None:
    tenants = start_all(mps_site, small=_SMALL, large=_LARGE)
    gpu = gpu_of(tenants[0])
    life, init, (old,) = mps_node.life(gpu), mps_node.init(), mps_node.supervisors()
    os.kill(old, signal.SIGKILL)
    wait_until(
        lambda: "" if set(mps_node.supervisors()) - {old} else "none",
        waiting_for="another supervisor",
        timeout_s=TIMEOUT_S,
    )
    new = mps_site.start("new", part(10, "30Gi"))
    assert gpu_of(new) == gpu
    assert mps_node.limits(gpu) == ("40.0", "30G")
    _assert_same(mps_site, mps_node, tenants, gpu=gpu, life=life, limits=("40.0", "30G"))
    assert mps_node.init() == init
    (status,) = mps_node.pod()["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    wait_until_settled(mps_node.cluster)


def test_the_gpu_is_as_before_once_its_last_share_has_gone(
    mps_site: Site, mps_node: MpsNode
) -> None:
    small, large = start_all(mps_site, small=_SMALL, large=_LARGE)
    gpu = gpu_of(small)
    assert gpu_of(large) == gpu
    life = mps_node.life(gpu)
    mps_site.delete("large")
    mps_site.wait_gone("large")
    wait_until(
        lambda: "" if mps_node.limits(gpu) == ("25.0", "6G") else str(mps_node.limits(gpu)),
        waiting_for="lower ceilings",
        timeout_s=TIMEOUT_S,
    )
    _assert_same(mps_site, mps_node, [small], gpu=gpu, life=life, limits=("25.0", "6G"))
    mps_site.delete("small")
    mps_site.wait_gone("small")
    mps_node.wait_phase(gpu, MpsPhase.FREE)
    assert mps_node.daemons(gpu) == ()
    assert mps_node.compute_mode(gpu) == "Default"
    assert mps_node.folders() == {}


def test_shares_hold_again_and_claims_are_told_when_their_daemon_is_killed(
    mps_site: Site, mps_node: MpsNode
) -> None:
    cluster = mps_node.cluster
    tenants = start_all(mps_site, change=with_program(mps_node), small=_SMALL, large=_LARGE)
    gpu = gpu_of(tenants[0])
    life, socket = mps_node.life(gpu), mps_node.inode(gpu)
    version = _version(cluster)
    # As long as a server of a real GPU may take to start.
    slow = {"gpu": gpu, "call": "mps.server", "delay": "3s"}
    set_simulated(cluster, mps_document(cluster, faults=[slow]))
    (daemon,) = mps_node.daemons(gpu)
    os.kill(daemon, signal.SIGKILL)
    mps_node.wait_state(
        gpu,
        lambda state: state.phase is MpsPhase.ACTIVE and state.daemon_pid != daemon,
        "another daemon that serves",
    )
    assert mps_node.life(gpu)[3] == life[3] + 1
    assert mps_node.limits(gpu) == _CEILINGS
    assert mps_node.inode(gpu) != socket
    for tenant in tenants:
        # The folder that is mounted leads to the new daemon.
        assert sockets_inside(tenant) == {"control"}
        assert socket_inside(tenant) == mps_node.inode(gpu)
        assert ask_inside(mps_site, tenant, "get_default_active_thread_percentage") == "40.0"
        claim = mps_site.claim_of(tenant.name)["metadata"]["name"]
        mps_site.wait_event(claim, "MpsServerLost", gpu, "restart the pod")
    mps_site.unchanged(*tenants)
    deployed.wait_published(cluster, until=lambda devices: not _tainted(devices))
    assert gpu in _tainted_since(cluster, version)
    wait_until_settled(cluster)


def test_a_pod_ends_although_its_gpu_is_lost(mps_site: Site, mps_node: MpsNode) -> None:
    cluster = mps_node.cluster
    document, gpu = mps_document(cluster), f"GPU-{cluster.cell.id}-lost"
    document["gpus"].append({"uuid": gpu})
    set_simulated(cluster, document)
    deployed.wait_published(cluster, until=lambda devices: _is_offered(devices, gpu))
    tenant = mps_site.start("tenant", _only(gpu))
    assert gpu_of(tenant) == gpu
    set_simulated(cluster, mps_document(cluster))
    deployed.wait_published(cluster, until=lambda devices: gpu in _tainted(devices))
    mps_site.unchanged(tenant)
    mps_site.delete("tenant")
    mps_site.wait_gone("tenant", timeout_s=TIMEOUT_S)
    assert mps_node.daemons(gpu) == ()
    wait_until_settled(cluster)


def _assert_same(
    site: Site,
    node: MpsNode,
    tenants: list[Tenant],
    *,
    gpu: str,
    life: tuple[object, ...],
    limits: tuple[str, str] = _CEILINGS,
) -> None:
    """Fail unless tenants and their daemon went on, with what they had."""
    node.wait_phase(gpu, MpsPhase.ACTIVE)
    assert node.life(gpu) == life
    assert node.daemons(gpu) == life[1:2]
    assert node.limits(gpu) == limits
    assert {limits_inside(tenant) for tenant in tenants} <= {
        ("25.0", "0=6144M"),
        ("40.0", "0=20480M"),
    }
    assert {socket_inside(tenant) for tenant in tenants} == {node.inode(gpu)}
    site.unchanged(*tenants)


def _only(gpu: str) -> Json:
    expression = f'device.attributes["{deployed.DRIVER}"].uuid == "{gpu}"'
    return {**_SMALL, "selectors": [{"cel": {"expression": expression}}]}


def _is_offered(devices: tuple[Json, ...], gpu: str) -> bool:
    found = [each for each in devices if deployed.attribute(each, "uuid") == gpu]
    return "standard" in {deployed.attribute(each, "tier") for each in found}


def _version(cluster: Cluster) -> str:
    return str(cluster.admin.get(SLICES)["metadata"]["resourceVersion"])


def _tainted_since(cluster: Cluster, version: str) -> frozenset[str]:
    """GPUs that were published as unhealthy at some time after a version of the slices."""
    text = cluster.admin.text(
        SLICES,
        watch="true",
        fieldSelector=of_node(cluster),
        resourceVersion=version,
        timeoutSeconds="1",
    )
    changes = (json.loads(line)["object"]["spec"] for line in text.splitlines())
    return frozenset(gpu for each in changes for gpu in _tainted(each.get("devices", ())))


def _tainted(devices: tuple[Json, ...]) -> frozenset[str]:
    return frozenset(
        str(deployed.attribute(each, "uuid")) for each in devices if each.get("taints")
    )
