"""Shares of one GPU under a real MPS control daemon: what holds them, and who can change it."""

from pathlib import Path

import pytest

from dra_driver.model.mps import MpsPhase
from tests.cluster.deployed import attribute, published
from tests.cluster.life_site import Site, part
from tests.cluster.mps_node import MpsNode, environment, gpu_of
from tests.cluster.mps_tenants import (
    ask_inside,
    limits_inside,
    socket_inside,
    sockets_inside,
    start_all,
    with_config,
    with_program,
)
from tests.kube.client import Json

pytestmark = pytest.mark.timeout(300, func_only=True)

_SMALL, _LARGE = part(25, "6Gi"), part(40, "20Gi")

# Of a daemon; to change those of a server takes one, which takes a GPU.
_CHANGES = (
    "set_default_active_thread_percentage 100",
    "set_default_device_pinned_mem_limit 0 80G",
    "set_default_client_priority 0",
    "quit -t 1",
    "quit",
)


def test_limits_stand_in_the_daemon_and_in_each_container(
    mps_site: Site, mps_node: MpsNode
) -> None:
    small, large = start_all(mps_site, small=_SMALL, large=_LARGE)
    gpu = gpu_of(small)
    assert gpu_of(large) == gpu
    state = mps_node.wait_phase(gpu, MpsPhase.ACTIVE)
    assert mps_node.daemons(gpu) == (state.daemon_pid,)
    assert mps_node.limits(gpu) == ("40.0", "20G")
    assert mps_node.compute_mode(gpu) == "ExclusiveProcess"
    assert limits_inside(small) == ("25.0", "0=6144M")
    assert limits_inside(large) == ("40.0", "0=20480M")
    for tenant in (small, large):
        assert sockets_inside(tenant) == {"control"}
        assert socket_inside(tenant) == mps_node.inode(gpu)
    # What is not real is visible.
    assert state.simulated
    assert '"daemons": "real", "servers": "simulated"' in mps_node.log()


def test_root_in_a_container_can_read_limits_but_not_change_them(
    mps_site: Site, mps_node: MpsNode
) -> None:
    tenant, other = start_all(mps_site, change=with_program(mps_node), tenant=_SMALL, other=_LARGE)
    gpu = gpu_of(tenant)
    life = mps_node.life(gpu)
    assert ask_inside(mps_site, tenant, "get_default_active_thread_percentage") == "40.0"
    assert ask_inside(mps_site, tenant, "get_default_device_pinned_mem_limit 0") == "20G"
    answers = {command: ask_inside(mps_site, tenant, command) for command in _CHANGES}
    allowed = {command: text for command, text in answers.items() if "privilege" not in text}
    assert not allowed
    assert mps_node.limits(gpu) == ("40.0", "20G")
    assert mps_node.life(gpu) == life
    mps_site.unchanged(tenant, other)


def test_what_users_set_up_themselves_breaks_neither_them_nor_their_neighbours(
    mps_site: Site, mps_node: MpsNode
) -> None:
    neighbour = mps_site.start("neighbour", _LARGE, change=with_program(mps_node))
    gpu = gpu_of(neighbour)
    life, socket = mps_node.life(gpu), socket_inside(neighbour)
    tenant = mps_site.start("tenant", _SMALL, change=_with_own_mps, hostIPC=True)
    assert gpu_of(tenant) == gpu
    # The claim's variables win, and stand there once.
    assert limits_inside(tenant) == ("25.0", "0=6144M")
    assert sockets_inside(tenant) == {"control"}
    names = [line.partition("=")[0] for line in _variables(tenant.pid)]
    assert len(names) == len(set(names))
    assert environment(tenant.pid)["CUDA_VISIBLE_DEVICES"] == "3"
    assert Path(f"/proc/{tenant.pid}/root/dev/shm/mine").exists()
    assert not Path(f"/proc/{neighbour.pid}/root/dev/shm/mine").exists()
    assert mps_node.life(gpu) == life
    assert socket_inside(neighbour) == socket
    assert ask_inside(mps_site, neighbour, "get_default_active_thread_percentage") == "40.0"
    mps_site.unchanged(neighbour)


@pytest.mark.parametrize(
    ("qos", "priority"), [("Guaranteed", None), ("Burstable", None), ("BestEffort", "1")]
)
def test_quality_of_service_decides_what_a_share_may_use_beyond_its_own(
    mps_site: Site, mps_node: MpsNode, qos: str, priority: str | None
) -> None:
    tenant = mps_site.start("tenant", with_config(_SMALL, qos=qos))
    gpu = gpu_of(tenant)
    percent = "25.0" if qos == "Guaranteed" else "100.0"
    assert limits_inside(tenant) == (percent, "0=6144M")
    assert environment(tenant.pid).get("CUDA_MPS_CLIENT_PRIORITY") == priority
    assert mps_node.limits(gpu) == (percent, "6G")
    (device,) = (each for each in published(mps_node.cluster) if _is_gpu(each, gpu))
    names = ("tier", "mpsMultiUser", "burstAllowed")
    assert [attribute(device, name) for name in names] == ["standard", False, True]


def _with_own_mps(pod: Json) -> None:
    (container,) = pod["spec"]["containers"]
    container["env"] = [
        {"name": name, "value": value}
        for name, value in {
            "CUDA_MPS_PIPE_DIRECTORY": "/tmp/mine",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=80G",
            "CUDA_VISIBLE_DEVICES": "3",
        }.items()
    ]
    container["command"] = ["sh", "-c", f"touch /dev/shm/mine; {container['command'][-1]}"]
    pod["spec"]["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})


def _variables(pid: int) -> list[str]:
    return [line for line in Path(f"/proc/{pid}/environ").read_text().split("\0") if line]


def _is_gpu(device: Json, gpu: str) -> bool:
    return (attribute(device, "type"), attribute(device, "uuid")) == ("gpu", gpu)
