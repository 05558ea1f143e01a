"""Simulated time slicer and device nodes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_sharing import (
    SimulatedDriverFiles,
    SimulatedTimeSlicer,
)
from dra_driver.errors import AdapterError
from dra_driver.model.share import TimeSlice
from tests.builders import gpu, inventory, uuid
from tests.fakes.gpu_node import NodeState, simulation_text, write_whole

NODE = NodeState(gpus=(gpu(0), gpu(1)))


class Bench:
    """A simulated node and what it leaves on disk."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.path = folder / "node.yaml"
        self.path.write_text(simulation_text(NODE))
        self.file = SimulationFile(self.path, node_name="node-a")

    def fault(self, **fields: Any) -> None:
        text = simulation_text(NODE).replace('"faults": []', f'"faults": [{json.dumps(fields)}]')
        write_whole(self.path, text)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


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
