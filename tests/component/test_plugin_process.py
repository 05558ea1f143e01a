"""The whole driver as a process: what it promises to the kubelet, users and administrators."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from dra_driver.model.health import HealthStatus
from dra_driver.sim.api_faults import Fault
from dra_driver.sim.kubelet_values import KubeletError
from tests import builders
from tests.component.node_rig import NodeRig, node_rig, simulation
from tests.waiting import eventually


def test_plugin_prepares_and_unprepares_a_slice(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin():
        rig.wait_ready()
        claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
        rig.kubelet.prepare("pod", [claim])
        (spec,) = [json.loads((rig.cdi / name).read_text()) for name in rig.specs()]
        (device,) = spec["devices"]
        assert rig.kubelet.cdi_ids(claim.ref.uid) == (f"{spec['kind']}={device['name']}",)
        (folder,) = device["containerEdits"]["mounts"]
        assert folder["hostPath"].startswith(f"{root}/run/")
        assert Path(folder["hostPath"], "control").is_socket()
        assert {
            f"CUDA_MPS_PIPE_DIRECTORY={folder['containerPath']}",
            f"GPUSLICE_GPU_UUID={builders.uuid(0)}",
            "GPUSLICE_COMPUTE_PERCENT=25",
            "GPUSLICE_MEMORY_MIB=6144",
        } <= set(device["containerEdits"]["env"])
        rig.kubelet.unprepare("pod")
        assert rig.specs() == []
        assert list((rig.state / "claims").iterdir()) == []


def test_plugin_answers_the_same_after_kill_and_restart(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        with rig.plugin() as first:
            rig.wait_ready()
            claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
            rig.kubelet.prepare("pod", [claim])
            before = rig.kubelet.devices(claim.ref.uid)
            first.kill()
        for spec in rig.specs():
            (rig.cdi / spec).unlink()  # as a reboot empties /run, or an administrator does
        with rig.plugin():
            eventually(lambda: len(rig.specs()) == 1, 20, "the spec is written again at start")
            rig.kubelet.restart()
            rig.wait_ready()
            rig.kubelet.prepare("pod", [claim])
            assert rig.kubelet.devices(claim.ref.uid) == before
            rig.kubelet.unprepare("pod")
            assert rig.specs() == []


def test_plugin_publishes_again_when_the_kubelet_wipes_its_slices(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin():
        rig.wait_ready()
        before = rig.devices()
        rig.wipe()
        assert rig.slices() == ()
        eventually(lambda: rig.devices() == before, 10, "the same devices are published again")


def test_plugin_writes_nothing_when_it_starts_again_on_an_unchanged_node(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        with rig.plugin() as first:
            rig.wait_ready()
            assert first.stop() == 0
        before = (rig.slices(), rig.api.writes())
        with rig.plugin() as second:
            eventually(lambda: "Published the pool" in second.log.split("Stopped")[-1], 20, "ready")
            assert (rig.slices(), rig.api.writes()) == before


def test_plugin_serves_unprepare_when_there_is_no_api_server(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig:
        with rig.plugin() as first:
            rig.wait_ready()
            claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
            rig.kubelet.prepare("pod", [claim])
            first.kill()
        rig.api.stop()
        with rig.plugin():
            eventually(lambda: _unprepared(rig, "pod"), 20, "the claim is unprepared")
            assert rig.specs() == []


def test_plugin_prepares_once_the_api_server_is_back(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin() as plugin:
        rig.wait_ready()
        claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
        rig.api.stop()
        call = Thread(target=rig.kubelet.prepare, args=("pod", [claim]), name="pod")
        call.start()
        try:
            eventually(lambda: "Could not publish" in plugin.log, 20, "the outage is noticed")
        finally:
            rig.api.start()
            call.join(30)
        assert len(rig.kubelet.devices(claim.ref.uid)) == 1


def test_plugin_tells_a_sick_gpu_to_the_kubelet_and_the_scheduler(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin():
        rig.wait_ready()
        sick = rig.gpus()[1]
        event = f"events:\n- {{gpu: {builders.uuid(1)}, xid: 79}}\n"
        rig.simulation.write_text(simulation() + event)
        eventually(lambda: sick in _unhealthy(rig), 10, "the kubelet hears of the sick GPU")
        eventually(lambda: _tainted(rig) == [sick], 10, "its device is tainted")


def test_plugin_prepares_while_a_write_of_its_slices_hangs(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin():
        rig.wait_ready()
        claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
        rig.api.faults.add(Fault(verb="update", resource="resourceslices", delay_s=600.0))
        event = f"events:\n- {{gpu: {builders.uuid(1)}, xid: 79}}\n"
        rig.simulation.write_text(simulation() + event)
        eventually(lambda: rig.api.faults.pending() == 0, 20, "the write hangs")
        rig.kubelet.prepare("pod", [claim])
        rig.kubelet.unprepare("pod")
        assert _tainted(rig) == []


def test_plugin_offers_gpus_when_the_driver_is_loaded_late(root: Path) -> None:
    late = simulation() + "faults:\n- {call: enumerate, error: DRIVER_NOT_LOADED}\n"
    with (
        node_rig(root, simulation=late) as rig,
        rig.plugin(http_endpoint="127.0.0.1:0") as plugin,
    ):
        page = eventually(lambda: _endpoint(plugin.log), 20, "pages are served")
        # The page is there before the GPUs have been looked at.
        eventually(lambda: "driver" in _get(f"http://{page}/readyz")[1], 20, "it tells the reason")
        assert _get(f"http://{page}/readyz")[0] == 503
        assert rig.slices() == ()
        rig.simulation.write_text(simulation())
        rig.wait_ready()
        assert len(rig.gpus()) == 2
        eventually(lambda: _get(f"http://{page}/readyz")[0] == 200, 10, "the node is ready")
        assert _get(f"http://{page}/healthz")[0] == 200
        assert "gpuslice_published_devices" in _get(f"http://{page}/metrics")[1]


def test_plugins_of_a_rolling_update_share_the_node(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin("old", pod_uid="old") as old:
        rig.wait_ready()
        claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
        rig.kubelet.prepare("pod", [claim])
        with rig.plugin("new", pod_uid="new"):
            eventually(lambda: len(rig.kubelet.endpoints(builders.DRIVER)) == 2, 20, "both serve")
            assert old.stop() == 0
            eventually(lambda: len(rig.kubelet.endpoints(builders.DRIVER)) == 1, 20, "one is left")
            rig.kubelet.unprepare("pod")
            assert rig.specs() == []
            assert len(rig.gpus()) == 2


def test_plugin_refuses_to_start_twice_as_the_same_instance(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin():
        rig.wait_ready()
        with rig.plugin("second") as second:
            assert second.wait() == 1
            assert "another" in second.log
        claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
        rig.kubelet.prepare("pod", [claim])
        rig.kubelet.unprepare("pod")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_plugin_leaves_cleanly_when_it_gets_a_signal(root: Path, number: signal.Signals) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin() as plugin:
        rig.wait_ready()
        before = rig.slices()
        plugin.send(number)
        assert plugin.wait() == 0
        assert list(rig.kubelet.registry.iterdir()) == []
        assert list(rig.kubelet.plugins_folder.rglob("*.sock")) == []
        assert rig.slices() == before, "slices stay: without them the scheduler forgets claims"
        assert "Traceback" not in plugin.log


def test_plugin_publishes_nothing_when_the_signal_comes_while_gpus_are_read(root: Path) -> None:
    slow = simulation() + "faults:\n- {call: enumerate, delay: 600s}\n"
    with node_rig(root, simulation=slow) as rig, rig.plugin() as plugin:
        eventually(lambda: "Serving the kubelet" in plugin.log, 20, "the kubelet is answered")
        assert plugin.stop() == 0
        assert rig.api.writes() == {}
        assert list(rig.kubelet.registry.iterdir()) == []
        assert "Traceback" not in plugin.log


def _unprepared(rig: NodeRig, pod: str) -> bool:
    try:
        rig.kubelet.unprepare(pod)
    except KubeletError:
        return False
    return True


def _unhealthy(rig: NodeRig) -> set[str]:
    return {
        report.row.device
        for report in rig.kubelet.health(builders.DRIVER)
        if report.row.status is HealthStatus.UNHEALTHY
    }


def _tainted(rig: NodeRig) -> list[str]:
    return [device["name"] for device in rig.devices() if device.get("taints")]


def _endpoint(log: str) -> str:
    _, found, rest = log.partition("Serving health and metrics")
    return rest.partition("endpoint=")[2].split()[0] if found else ""


def _get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
