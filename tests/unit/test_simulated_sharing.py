"""Simulated supervisor, time slicer and device nodes."""

from __future__ import annotations

import json
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_sharing import (
    SimulatedDriverFiles,
    SimulatedSupervisor,
    SimulatedTimeSlicer,
)
from dra_driver.errors import AdapterError, NotReady
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import Tier
from dra_driver.model.share import GpuShare, Sharing, TimeSlice
from tests.builders import gpu, inventory, uuid
from tests.fakes.gpu_node import NodeState, simulation_text, write_whole

NODE = NodeState(gpus=(gpu(0), gpu(1)))


class RealClock:
    def monotonic_s(self) -> float:
        return monotonic()

    def wall_s(self) -> float:
        return 0.0


class Bench:
    """A supervisor and what it leaves on disk."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.path = folder / "node.yaml"
        self.path.write_text(simulation_text(NODE))
        self.file = SimulationFile(self.path, node_name="node-a")
        self.supervisor = self.restarted()

    def restarted(self) -> SimulatedSupervisor:
        return SimulatedSupervisor(
            SimulationFile(self.path, node_name="node-a"),
            run_dir=self.run_dir,
            clock=RealClock(),
            burst_allowed=True,
        )

    def fault(self, **fields: Any) -> None:
        text = simulation_text(NODE).replace('"faults": []', f'"faults": [{json.dumps(fields)}]')
        write_whole(self.path, text)

    def shares(self, number: int = 0) -> Any:
        path = self.run_dir / f"simulated/shares/{uuid(number)}.json"
        return json.loads(path.read_text()) if path.exists() else None


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def share(number: int, *, percent: int = 25) -> GpuShare:
    return GpuShare(
        id=f"share-{number}",
        gpu=uuid(0),
        sharing=Sharing.MPS,
        compute_percent=percent,
        memory_mib=6144,
    )


def soon(seconds: float = 10) -> Deadline:
    return Deadline(monotonic() + seconds)


def test_apply_keeps_exactly_the_desired_set(bench: Bench) -> None:
    bench.supervisor.apply(uuid(0), (share(2), share(1)), soon())
    bench.supervisor.apply(uuid(0), (share(3, percent=50), share(2)), soon())

    content = bench.shares()
    assert content["gpu"] == uuid(0)
    assert content["ready"] is True
    assert [(each["id"], each["computePercent"]) for each in content["shares"]] == [
        ("share-2", 25),
        ("share-3", 50),
    ]
    assert content["shares"][0] == {
        "id": "share-2",
        "sharing": "MPS",
        "computePercent": 25,
        "memoryMib": 6144,
        "priority": 0,
        "qos": "Guaranteed",
        "onExceed": "Warn",
    }


def test_apply_frees_the_gpu_when_the_set_is_empty(bench: Bench) -> None:
    bench.supervisor.apply(uuid(0), (share(1),), soon())

    for _ in range(2):
        bench.supervisor.apply(uuid(0), (), soon())

    assert bench.shares() is None


def test_apply_starts_the_server_once(bench: Bench) -> None:
    bench.supervisor.apply(uuid(0), (share(1),), soon())
    bench.fault(call="mps.start", error="UNKNOWN")

    bench.restarted().apply(uuid(0), (share(1), share(2)), soon())

    assert len(bench.shares()["shares"]) == 2


@pytest.mark.parametrize("call", ["mps.start", "setComputeMode"])
def test_apply_fails_when_the_server_does_not_start_and_works_later(
    bench: Bench, call: str
) -> None:
    bench.fault(gpu=uuid(0), call=call, error="UNKNOWN", times=1)

    with pytest.raises(AdapterError, match=call):
        bench.supervisor.apply(uuid(0), (share(1),), soon())
    assert bench.shares()["ready"] is False
    bench.supervisor.apply(uuid(0), (share(1),), soon())

    assert bench.shares()["ready"] is True


def test_apply_leaves_the_set_desired_when_the_deadline_comes_first(bench: Bench) -> None:
    bench.fault(gpu=uuid(0), call="mps.start", delay="600ms", times=1)
    start_s = monotonic()

    with pytest.raises(NotReady, match="still starting"):
        bench.supervisor.apply(uuid(0), (share(1),), soon(0.2))
    assert 0.2 <= monotonic() - start_s < 0.6
    assert bench.shares()["ready"] is False
    bench.supervisor.apply(uuid(0), (share(1),), soon())

    assert 0.6 <= monotonic() - start_s < 1.1
    assert bench.shares()["ready"] is True


def test_apply_of_one_gpu_leaves_the_others(bench: Bench) -> None:
    bench.supervisor.apply(uuid(0), (share(1),), soon())
    bench.supervisor.apply(uuid(1), (share(2),), soon())

    bench.supervisor.apply(uuid(0), (), soon())

    assert bench.shares(1)["ready"] is True


def test_apply_refuses_a_gpu_that_is_not_there(bench: Bench) -> None:
    with pytest.raises(AdapterError, match="--simulate"):
        bench.supervisor.apply(uuid(9), (share(1),), soon())

    assert not (bench.run_dir / "simulated").exists()


def test_apply_writes_a_damaged_file_anew(bench: Bench) -> None:
    bench.supervisor.apply(uuid(0), (share(1),), soon())
    (bench.run_dir / f"simulated/shares/{uuid(0)}.json").write_text("{")

    bench.supervisor.apply(uuid(0), (share(1),), soon())

    assert bench.shares()["ready"] is True


def test_abilities_follow_the_inventory(bench: Bench) -> None:
    node = inventory(gpu(0, mps_control_only=True), gpu(1, compute_capability=(6, 0)))

    assert [each.tier for each in bench.supervisor.abilities(node)] == [Tier.STANDARD, None]


def test_time_slicer_remembers_what_is_not_the_default(bench: Bench) -> None:
    slicer = SimulatedTimeSlicer(bench.file, run_dir=bench.run_dir)
    path = bench.run_dir / f"simulated/time-slices/{uuid(0)}.json"

    slicer.set_interval(uuid(0), TimeSlice.LONG)
    assert json.loads(path.read_text()) == {"gpu": uuid(0), "interval": "Long"}
    for _ in range(2):
        slicer.set_interval(uuid(0), TimeSlice.DEFAULT)

    assert not path.exists()


def test_time_slicer_fails_when_a_fault_says_so(bench: Bench) -> None:
    slicer = SimulatedTimeSlicer(bench.file, run_dir=bench.run_dir)
    bench.fault(gpu=uuid(0), call="setTimeSlice", error="NO_PERMISSION")

    with pytest.raises(AdapterError, match="NO_PERMISSION"):
        slicer.set_interval(uuid(0), TimeSlice.LONG)


def test_driver_files_are_harmless_nodes_of_each_gpu() -> None:
    edits = SimulatedDriverFiles().edits(inventory(gpu(0), gpu(1, minor=5)))

    assert [node.path for node in edits.per_gpu[uuid(1)].device_nodes] == ["/dev/gpuslice-sim5"]
    assert [node.path for node in edits.common.device_nodes] == ["/dev/gpuslice-simctl"]
    nodes = [*edits.common.device_nodes, *edits.per_gpu[uuid(0)].device_nodes]
    assert {(each.host_path, each.type, each.major, each.minor) for each in nodes} == {
        ("/dev/null", "c", 1, 3)
    }
    assert edits.common.env == ()
