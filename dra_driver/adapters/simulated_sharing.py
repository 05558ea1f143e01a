"""Sharing of simulated GPUs: what real supervisors would enforce, kept in files for all to see."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from typing import Any

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.simulated import wait_out
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.errors import AdapterError, NotReady, Reason
from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import GpuShare, ShareAbility, TimeSlice
from dra_driver.plan.tiers import share_abilities
from dra_driver.ports import Clock


class SimulatedSupervisor:
    """`ShareSupervisor` that enforces nothing.

    The desired shares of a GPU stand in <run-dir>/simulated/shares/<uuid>.json, which survives the
    process; `ready` says whether the GPU's simulated MPS server has started. Faults of the calls
    setComputeMode and mps.start hit the start of that server.

    Args:
        file: of the simulated node.
        run_dir: the run folder of the plugin.
        clock: for deadlines.
        burst_allowed: what `abilities` tells of every GPU.
    """

    def __init__(
        self, file: SimulationFile, *, run_dir: Path, clock: Clock, burst_allowed: bool
    ) -> None:
        self._file = file
        self._folder = DurableFolder(run_dir / "simulated/shares", setting="--run-dir")
        self._clock = clock
        self._burst_allowed = burst_allowed
        self._lock = Lock()
        self._starting: dict[GpuUuid, tuple[float, str]] = {}

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        if not shares:
            with self._lock:
                self._starting.pop(gpu, None)
            if self._folder.unlink(_name(gpu)):
                self._folder.sync()
            return
        if all(known.uuid != gpu for known in self._file.last_good().gpus):
            raise AdapterError(f"GPU {gpu} is not in the --simulate file, so it cannot be shared")
        ready = self._ready(gpu)
        self._write(gpu, shares, ready=ready)
        if not ready:
            self._start(gpu, deadline)
            self._write(gpu, shares, ready=True)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return share_abilities(inventory, burst_allowed=self._burst_allowed)

    def _start(self, gpu: GpuUuid, deadline: Deadline) -> None:
        """Start the MPS server; a start that a deadline cut short goes on behind the next call."""
        with self._lock:
            start = self._starting.get(gpu)
            if start is None:
                start = self._starting[gpu] = self._begin(gpu)
        ready_at_s, error = start
        now_s = self._clock.monotonic_s()
        left_s = ready_at_s - now_s
        if left_s > 0:
            self._file.pause(min(left_s, deadline.remaining_s(now_s)))
        if left_s > deadline.remaining_s(now_s):
            raise NotReady(
                Reason.OUT_OF_TIME,
                f"the MPS server of GPU {gpu} is still starting; it will be looked at again",
            )
        with self._lock:
            self._starting.pop(gpu, None)
        if error:
            raise AdapterError(f"the MPS server of GPU {gpu} does not start: {error}")

    def _begin(self, gpu: GpuUuid) -> tuple[float, str]:
        """When the server will be up, and the error that it will end with instead."""
        delay_s, error = 0.0, ""
        for call in ("setComputeMode", "mps.start"):
            fault = self._file.fault(call, gpu)
            if fault is not None and not error:
                delay_s += fault.delay_s
                error = f"{call} failed: {fault.error}" if fault.error else ""
        return self._clock.monotonic_s() + delay_s, error

    def _ready(self, gpu: GpuUuid) -> bool:
        content = _read(self._folder, _name(gpu))
        return isinstance(content, dict) and content.get("ready") is True

    def _write(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], *, ready: bool) -> None:
        entries = [_share(share) for share in sorted(shares, key=lambda share: share.id)]
        _write(self._folder, _name(gpu), {"gpu": gpu, "ready": ready, "shares": entries})


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


def _share(share: GpuShare) -> dict[str, Any]:
    return {
        "id": share.id,
        "sharing": share.sharing.value,
        "computePercent": share.compute_percent,
        "memoryMib": share.memory_mib,
        "priority": share.priority,
        "qos": share.qos.value,
        "onExceed": share.on_exceed.value,
    }


def _write(folder: DurableFolder, name: str, content: dict[str, Any]) -> None:
    folder.write(name, json.dumps(content, sort_keys=True, indent=1).encode() + b"\n")


def _read(folder: DurableFolder, name: str) -> object:
    """Content of a file; None where it is missing or no JSON: it is written anew then."""
    with folder.reported(f"read {name} from"):
        content = folder.read(name)
    try:
        parsed: object = json.loads(content or b"null")
    except ValueError:
        return None
    return parsed
