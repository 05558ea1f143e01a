"""Time slices and device nodes of simulated GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.simulated import wait_out
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.errors import AdapterError
from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import TimeSlice


class SimulatedTimeSlicer:
    """`TimeSlicer` that remembers: <run-dir>/simulated/time-slices/<uuid>.json, none for Default.

    Fault `setTimeSlice` of the simulation file hits it.
    """

    def __init__(self, file: SimulationFile, *, run_dir: Path) -> None:
        self._file = file
        self._folder = DurableFolder(run_dir / "simulated/time-slices", setting="--run-dir")

    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        error = wait_out(self._file, self._file.fault("setTimeSlice", gpu))
        if error:
            raise AdapterError(
                f"the time slice of GPU {gpu} cannot be set: {error}",
                permanent=error == "NOT_SUPPORTED",
            )
        if interval is not TimeSlice.DEFAULT:
            _write(self._folder, _name(gpu), {"gpu": gpu, "interval": interval.value})
        elif self._folder.unlink(_name(gpu)):
            self._folder.sync()


class SimulatedDriverFiles:
    """`DriverFiles` whose device nodes are /dev/null under other names, so that pods start."""

    def __init__(self) -> None:
        self._known: tuple[Inventory, DriverEdits] | None = None

    def edits(self, inventory: Inventory) -> DriverEdits:
        known = self._known
        if known is None or known[0] is not inventory:
            known = self._known = (inventory, self._edits(inventory))
        return known[1]

    def _edits(self, inventory: Inventory) -> DriverEdits:
        return DriverEdits(
            common=Edits(device_nodes=(_node("/dev/gpuslice-simctl"),)),
            per_gpu={
                gpu.uuid: Edits(device_nodes=(_node(f"/dev/gpuslice-sim{gpu.minor}"),))
                for gpu in inventory.gpus
            },
        )


def _node(path: str) -> DeviceNode:
    return DeviceNode(
        path=path, host_path="/dev/null", type="c", major=1, minor=3, permissions="rw"
    )


def _name(gpu: GpuUuid) -> str:
    return f"{gpu}.json"


def _write(folder: DurableFolder, name: str, content: dict[str, Any]) -> None:
    folder.write(name, json.dumps(content, sort_keys=True, indent=1).encode() + b"\n")
