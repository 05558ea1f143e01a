"""The plugin beside a supervisor of shares that goes away, comes back and loses daemons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dra_driver.model.mps import MpsPhase
from tests import builders
from tests.builders import uuid
from tests.component.node_rig import NodeRig, node_rig, simulation
from tests.fakes.sharing import FakeSharing
from tests.waiting import eventually
from tests.wire.mpsd import serving

_WAIT_S = 60
_LOST = "MpsServerLost"


def taints(rig: NodeRig) -> list[tuple[str, str]]:
    """Value and effect of all taints of GPU 0's device."""
    name = f"{uuid(0)}"
    return [
        (taint["value"], taint["effect"])
        for device in rig.devices()
        if device["attributes"]["uuid"]["string"] == name
        for taint in device.get("taints", ())
    ]


def shareable(rig: NodeRig) -> list[bool]:
    return [
        bool(device.get("allowMultipleAllocations"))
        for device in rig.devices()
        if device["attributes"]["type"]["string"] == "gpu"
    ]


def events(rig: NodeRig, reason: str) -> list[dict[str, Any]]:
    return [dict(each) for each in rig.api.list("events") if each["reason"] == reason]


def applied(sharing: FakeSharing) -> list[int]:
    """How many shares GPU 0 had after each change."""
    return [len(shares) for gpu, shares in sharing.applied if gpu == uuid(0)]


def test_plugin_lives_with_an_mpsd_that_comes_late_fails_and_is_replaced(root: Path) -> None:
    socket = root / "m.sock"
    first, second = FakeSharing(uuid(0), uuid(1)), FakeSharing(uuid(0), uuid(1))
    with (
        node_rig(root, simulation=simulation()) as rig,
        rig.plugin(mpsd_socket=str(socket)) as plugin,
    ):
        eventually(lambda: "Ready for claims" in plugin.log, _WAIT_S, "the plugin is ready")
        assert rig.devices() == []
        with serving(socket, first):
            rig.wait_ready()
            assert shareable(rig) == [True, True]
            claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
            rig.kubelet.prepare("pod", [claim])
            assert applied(first)[-1] == 1

            first.tell(uuid(0), phase=MpsPhase.FAULT, restarts=1, message="it ended")
            eventually(lambda: taints(rig), _WAIT_S, "the device is tainted")
            assert taints(rig) == [("mps-fault", "NoSchedule")]
            eventually(lambda: events(rig, _LOST), _WAIT_S, "an Event is written")
            (event,) = events(rig, _LOST)
            assert event["involvedObject"]["name"] == claim.ref.name
            assert event["message"].endswith("restart the pod")
            first.tell(uuid(0), phase=MpsPhase.ACTIVE, message="")
            eventually(lambda: not taints(rig), _WAIT_S, "the taint is taken away")

        eventually(lambda: "tells nothing" in plugin.log, _WAIT_S, "its absence is noticed")
        with serving(socket, second):
            eventually(lambda: applied(second) == [1], _WAIT_S, "the share is asserted anew")
            assert shareable(rig) == [True, True]
            rig.kubelet.unprepare("pod")
            assert applied(second) == [1, 0]


def test_plugin_tells_the_claims_of_a_lost_daemon_and_starts_it_again(root: Path) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin():
        rig.wait_ready()
        claim = rig.allocate(1, [builders.share_result(rig.gpus()[0])])
        rig.kubelet.prepare("pod", [claim])
        daemon = root / "run/simulated/mps" / f"{uuid(0)}.daemon.json"
        before = daemon.read_text()
        daemon.unlink()
        eventually(lambda: events(rig, _LOST), _WAIT_S, "an Event is written")
        eventually(daemon.exists, _WAIT_S, "the daemon is started again")
        assert daemon.read_text() != before
        eventually(lambda: not taints(rig), _WAIT_S, "the GPU is healthy again")
        rig.kubelet.unprepare("pod")
        eventually(lambda: not daemon.exists(), _WAIT_S, "the GPU is given back")


def test_plugin_prepares_whole_gpus_while_mpsd_is_away(root: Path) -> None:
    """What needs no supervisor does not wait for one, at a start neither."""
    with node_rig(root, simulation=simulation()) as rig:
        with rig.plugin():
            rig.wait_ready()
        names = rig.gpus()
        with rig.plugin("later", mpsd_socket=str(root / "nobody.sock")) as plugin:
            eventually(lambda: "Ready for claims" in plugin.log, _WAIT_S, "the plugin is ready")
            eventually(lambda: "registered the driver" in plugin.log, _WAIT_S, "it is registered")
            result = {
                name: value
                for name, value in builders.share_result(names[1]).items()
                if name not in ("shareID", "consumedCapacity")
            }
            claim = rig.allocate(2, [result])
            rig.kubelet.prepare("pod", [claim])
            assert rig.specs()
            rig.kubelet.unprepare("pod")
