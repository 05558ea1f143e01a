"""Compute modes of simulated GPUs on disk, and the document's processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_driver.adapters.simulated_control import SimulatedControl
from dra_driver.adapters.simulated_document import SimulatedProcess, Simulation, parse_simulation
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.yaml_fields import FieldError, load_yaml
from dra_driver.errors import AdapterError
from dra_driver.model.mps import ComputeMode
from tests.builders import uuid

TWO = f"gpus: [{{uuid: {uuid(0)}}}, {{uuid: {uuid(1)}}}]\n"


def parse(processes: str) -> Simulation:
    return parse_simulation(load_yaml(f"{TWO}processes: {processes}"), node_name="node-a")


def control(folder: Path) -> SimulatedControl:
    path = folder / "node.yaml"
    path.write_text(TWO)
    return SimulatedControl(SimulationFile(path, node_name="node-a"), run_dir=folder / "run")


def test_parse_takes_processes_by_uuid_and_index_in_order() -> None:
    node = parse(
        f"[{{gpu: 1, pid: 9, memory: 5Gi}}, {{gpu: {uuid(0)}, pid: 9, memory: null, mps: false}},"
        "{gpu: 0, pid: 2, memory: 7}]"
    )

    assert node.processes == (
        SimulatedProcess(gpu=uuid(0), pid=2, memory_bytes=7),
        SimulatedProcess(gpu=uuid(0), pid=9, memory_bytes=None, mps=False),
        SimulatedProcess(gpu=uuid(1), pid=9, memory_bytes=5 << 30),
    )


@pytest.mark.parametrize(
    ("processes", "where", "what"),
    [
        ("{}", "processes", "list"),
        ("[{pid: 1, memory: 1}]", "processes[0].gpu", "missing"),
        ("[{gpu: 0, memory: 1}]", "processes[0].pid", "missing"),
        ("[{gpu: 0, pid: 1}]", "processes[0].memory", "missing"),
        ("[{gpu: 7, pid: 1, memory: 1}]", "processes[0].gpu", "index"),
        (f"[{{gpu: {uuid(7)}, pid: 1, memory: 1}}]", "processes[0].gpu", "not among gpus"),
        ("[{gpu: 0, pid: 0, memory: 1}]", "processes[0].pid", "at least 1"),
        ("[{gpu: 0, pid: true, memory: 1}]", "processes[0].pid", "whole number"),
        ("[{gpu: 0, pid: 4194305, memory: 1}]", "processes[0].pid", "4194304"),
        ("[{gpu: 0, pid: 1, memory: -1}]", "processes[0].memory", "bytes"),
        ("[{gpu: 0, pid: 1, memory: much}]", "processes[0].memory", "much"),
        ("[{gpu: 0, pid: 1, memory: 1, mps: 1}]", "processes[0].mps", "true or false"),
        ("[{gpu: 0, pid: 1, memory: 1, uid: 0}]", "processes[0].uid", "known"),
        ("[{gpu: 0, pid: 1, memory: 1}, {gpu: 0, pid: 1, memory: 2}]", "processes[1].pid", "twice"),
    ],
)
def test_parse_refuses_a_process_and_names_the_field(processes: str, where: str, what: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse(processes)

    assert where in str(caught.value)
    assert what in str(caught.value)


def test_compute_mode_outlives_the_process(tmp_path: Path) -> None:
    control(tmp_path).set_compute_mode(uuid(0), ComputeMode.EXCLUSIVE_PROCESS)

    stored = tmp_path / f"run/simulated/compute-modes/{uuid(0)}.json"
    assert json.loads(stored.read_text()) == {"gpu": uuid(0), "mode": "ExclusiveProcess"}
    assert control(tmp_path).compute_mode(uuid(0)) is ComputeMode.EXCLUSIVE_PROCESS
    control(tmp_path).set_compute_mode(uuid(0), ComputeMode.DEFAULT)
    assert not stored.exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"mode": "Odd"}', '{"mode": []}', "\ud83d"])
def test_compute_mode_names_the_file_when_it_is_damaged(tmp_path: Path, content: str) -> None:
    path = tmp_path / f"run/simulated/compute-modes/{uuid(0)}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content.encode(errors="surrogatepass"))

    with pytest.raises(AdapterError, match=str(path)):
        control(tmp_path).compute_mode(uuid(0))
