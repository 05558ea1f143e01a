"""Compute modes and processes of simulated GPUs."""

from __future__ import annotations

import json
from pathlib import Path

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.simulated import wait_out
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import ComputeMode, GpuProcess


class SimulatedControl:
    """`GpuControl` on a simulation file.

    Compute modes stand in <run-dir>/simulated/compute-modes/<uuid>.json, none for Default, and
    outlive the process as those of a GPU do. Processes are those of the file. Faults of the calls
    computeMode, setComputeMode and processes hit it.

    Args:
        file: where the node is described.
        run_dir: the run folder of the node.
    """

    def __init__(self, file: SimulationFile, *, run_dir: Path) -> None:
        self._file = file
        self._folder = DurableFolder(run_dir / "simulated/compute-modes", setting="--run-dir")

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode:
        self._check(gpu, "computeMode")
        name = f"{gpu}.json"
        with self._folder.reported(f"read {name} from"):
            content = self._folder.read(name)
        if content is None:
            return ComputeMode.DEFAULT
        try:
            return ComputeMode(json.loads(content)["mode"])
        except (ValueError, TypeError, KeyError) as error:
            raise AdapterError(
                f"{self._folder.path}/{name} holds no compute mode ({error}): remove it for Default"
            ) from error

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        self._check(gpu, "setComputeMode")
        name = f"{gpu}.json"
        if mode is not ComputeMode.DEFAULT:
            content = json.dumps({"gpu": gpu, "mode": mode.value}, sort_keys=True, indent=1)
            self._folder.write(name, content.encode() + b"\n")
        elif self._folder.unlink(name):
            self._folder.sync()

    def processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        self._check(gpu, "processes")
        return tuple(
            GpuProcess(pid=each.pid, memory_bytes=each.memory_bytes, mps=each.mps)
            for each in self._file.last_good().processes
            if each.gpu == gpu
        )

    def _check(self, gpu: GpuUuid, call: str) -> None:
        """Whether the file has this GPU and lets the call succeed."""
        if all(known.uuid != gpu for known in self._file.last_good().gpus):
            raise AdapterError(f"{call} failed: GPU {gpu} is not in the --simulate file")
        error = wait_out(self._file, self._file.fault(call, gpu))
        if error:
            raise AdapterError(
                f"{call} of GPU {gpu} failed: {error}; take the fault out of the --simulate file"
            )
