"""Simulated MPS: what a test or a person makes it do, beyond the contract of all daemons."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_mps import ServerlessControl, SimulatedProver
from dra_driver.adapters.simulated_mps_servers import SimulatedMpsServers
from dra_driver.errors import AdapterError, MpsDenied, MpsGone, MpsServerNotFound, NotFound
from dra_driver.model.mps import MpsLimits, MpsServer, Proof, ServerStatus
from tests.builders import gpu, uuid
from tests.contract.mps_rig import GPU, SimulatedRig
from tests.fakes.gpu_node import NodeState, OnGpu, simulation_text, write_whole
from tests.waiting import eventually

LIMITS = MpsLimits(compute_percent=25, memory_mib=4096)


@pytest.fixture
def rig(tmp_path: Path) -> SimulatedRig:
    rig = SimulatedRig(tmp_path)
    rig.state = replace(
        rig.state,
        processes=(
            OnGpu(gpu=GPU, pid=20, memory_bytes=1 << 30),
            OnGpu(gpu=GPU, pid=10, memory_bytes=None),
            OnGpu(gpu=GPU, pid=30, memory_bytes=1 << 30, mps=False),
            OnGpu(gpu=uuid(1), pid=40, memory_bytes=1 << 30),
        ),
    )
    write_whole(rig.path, simulation_text(rig.state))
    rig.ports.daemons.start(GPU, multi_user=True)
    return rig


def _served(rig: SimulatedRig) -> int:
    rig.ports.servers.start(GPU, uid=1000)
    server = rig.ports.servers.find(GPU)
    assert server is not None
    return server.pid


def _kept(rig: SimulatedRig, kind: str) -> Any:
    return json.loads((rig.run_dir / f"simulated/mps/{GPU}.{kind}.json").read_text())


def test_server_is_found_by_another_process_of_ours(rig: SimulatedRig) -> None:
    pid = _served(rig)
    rig.ports.servers.start(GPU, uid=1000)
    assert rig.again().servers.find(GPU) == MpsServer(pid=pid, status=ServerStatus.ACTIVE)
    assert _kept(rig, "server")["uid"] == 1000
    assert _kept(rig, "daemon")["multiUser"] is True


def test_pids_are_none_of_a_real_process(rig: SimulatedRig) -> None:
    daemon = rig.ports.daemons.find(GPU)
    assert daemon is not None
    for pid in (daemon.pid, _served(rig)):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_clients_are_the_processes_of_the_file_until_they_are_terminated(rig: SimulatedRig) -> None:
    servers, server = rig.ports.servers, _served(rig)
    assert servers.clients(GPU, server) == (10, 20)
    servers.terminate(GPU, server, 20)
    assert rig.again().servers.clients(GPU, server) == (10,)
    for client in (20, 30, 40):
        with pytest.raises(NotFound):
            servers.terminate(GPU, server, client)
    assert _kept(rig, "server")["terminated"] == [20]


def test_server_with_clients_stops_by_force_only(rig: SimulatedRig) -> None:
    server = _served(rig)
    with pytest.raises(AdapterError, match="2 clients"):
        rig.ports.servers.stop(GPU, server, force=False)
    rig.ports.servers.stop(GPU, server, force=True)
    assert rig.ports.servers.find(GPU) is None


def test_limits_of_a_server_are_kept_beside_the_defaults(rig: SimulatedRig) -> None:
    server = _served(rig)
    rig.ports.control.set_limits(GPU, LIMITS, server)
    for kind in ("daemon", "server"):
        kept = _kept(rig, kind)
        assert (kept["computePercent"], kept["memoryMib"]) == (25, 4096)


@pytest.mark.parametrize("how", ["die", "kill", "quit"])
def test_server_ends_with_its_daemon(rig: SimulatedRig, how: str) -> None:
    server = _served(rig)
    match how:
        case "die":
            rig.die()
        case "kill":
            rig.ports.daemons.kill(GPU)
        case _:
            rig.ports.control.quit(GPU, force_after_s=1)
    with pytest.raises(MpsGone):
        rig.ports.servers.find(GPU)
    rig.ports.daemons.start(GPU, multi_user=True)
    assert rig.ports.servers.find(GPU) is None
    with pytest.raises(MpsServerNotFound):
        rig.ports.servers.clients(GPU, server)


def test_fault_of_a_start_leaves_no_daemon(rig: SimulatedRig) -> None:
    rig.ports.daemons.kill(GPU)
    rig.fault("mps.start", "UNKNOWN", delay="10ms")
    with pytest.raises(AdapterError, match="UNKNOWN"):
        rig.ports.daemons.start(GPU, multi_user=False)
    assert rig.ports.daemons.find(GPU) is None
    rig.fault()
    rig.ports.daemons.start(GPU, multi_user=False)


@pytest.mark.parametrize(
    ("error", "kind"), [("NO_PERMISSION", MpsDenied), ("UNKNOWN", AdapterError)]
)
def test_fault_of_commands_hits_all_of_them(
    rig: SimulatedRig, error: str, kind: type[AdapterError]
) -> None:
    server = _served(rig)
    rig.fault("mps.command", error)
    for ask in (
        lambda: rig.ports.control.limits(GPU),
        lambda: rig.ports.control.set_limits(GPU, LIMITS, None),
        lambda: rig.ports.control.quit(GPU, force_after_s=1),
        lambda: rig.ports.servers.clients(GPU, server),
    ):
        with pytest.raises(kind):
            ask()
    assert rig.ports.daemons.find(GPU) is not None


def test_server_initializes_for_the_delay_of_its_fault(rig: SimulatedRig) -> None:
    rig.fault("mps.server", delay="500ms")
    rig.ports.servers.start(GPU, uid=0)
    first = rig.ports.servers.find(GPU)
    assert first is not None
    assert first.status is ServerStatus.INITIALIZING
    active = replace(first, status=ServerStatus.ACTIVE)
    eventually(lambda: rig.ports.servers.find(GPU) == active, 60, "it is active")


def test_server_is_faulty_while_its_fault_stands(rig: SimulatedRig) -> None:
    pid = _served(rig)
    rig.fault("mps.status", "UNKNOWN")
    assert rig.ports.servers.find(GPU) == MpsServer(pid=pid, status=ServerStatus.FAULT)
    rig.fault()
    assert rig.ports.servers.find(GPU) == MpsServer(pid=pid, status=ServerStatus.ACTIVE)


def test_gpu_that_is_not_in_the_file_has_no_mps(rig: SimulatedRig) -> None:
    with pytest.raises(AdapterError, match="not in the --simulate file"):
        rig.ports.daemons.start(uuid(7), multi_user=False)


def test_wait_ends_with_the_file(rig: SimulatedRig) -> None:
    file = SimulationFile(rig.path, node_name="node-a")
    daemons = type(rig.ports.daemons)(file, run_dir=rig.run_dir)  # type: ignore[call-arg]
    daemon = daemons.find(GPU)
    assert daemon is not None
    file.close()
    assert daemons.wait({GPU: daemon}, 600) == ()


def test_real_daemon_can_have_a_simulated_server(rig: SimulatedRig) -> None:
    servers = rig.ports.servers
    assert isinstance(servers, SimulatedMpsServers)
    control = ServerlessControl(rig.ports.control, servers)
    server = _served(rig)
    control.set_limits(GPU, LIMITS, server)
    assert control.limits(GPU) == LIMITS
    assert _kept(rig, "server")["memoryMib"] == 4096
    with pytest.raises(MpsServerNotFound):
        control.set_limits(GPU, replace(LIMITS, compute_percent=50), 1)
    assert control.limits(GPU).compute_percent == 50


def test_proof_is_what_the_file_states(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    node = NodeState(gpus=tuple(gpu(n) for n in range(3)))
    document = json.loads(simulation_text(node))
    for entry, stated in zip(document["gpus"], (True, False, None), strict=True):
        entry["mps"] = {"controlOnly": stated}
    path.write_text(json.dumps(document))
    prover = SimulatedProver(SimulationFile(path, node_name="node-a"))
    assert prover.prove(uuid(0), tmp_path) == Proof(control_only=True)
    assert prover.prove(uuid(1), tmp_path).control_only is False
    assert prover.prove(uuid(2), tmp_path).control_only is None
