"""The GPUs of a simulated node."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import Any

from dra_driver.adapters.simulated_faults import NO_DEVICES, Fault
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.model.device import GpuFacts, Inventory, UnreadableGpu
from dra_driver.model.health import DeviceHealth, GpuEvent, HealthStatus

_POLL_S = 0.1

_AWAY = ("DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH", NO_DEVICES)
_LOST = ("GPU_IS_LOST", "RESET_REQUIRED")

# What a failed query leaves unknown; a failed `minor` falls back to the index.
_UNKNOWN: dict[str, dict[str, Any]] = {
    "minor": {},
    "name": {"product_name": ""},
    "brand": {"brand": None},
    "architecture": {"architecture": None},
    "memory": {"memory_total_bytes": None, "memory_reserved_bytes": 0},
    "cores": {"sm_count": None},
    "computeCapability": {"compute_capability": None, "sm_count": None},
    "pci": {"pci_bus_id": None, "pcie_root": None, "numa_node": None},
    "pcieRoot": {"pcie_root": None},
    "numaNode": {"numa_node": None},
    "nvlink": {"nvlink_domain": None},
    "mig": {"mig_enabled": False},
}


class SimulatedGpus:
    """`GpuLibrary` on a simulation file.

    Args:
        file: where the node is described.
        sysfs: gives the machine's boot id where the file has none.
    """

    def __init__(self, file: SimulationFile, *, sysfs: Sysfs) -> None:
        self._file = file
        self._sysfs = sysfs
        self._read_version = file.version()

    def inventory(self) -> Inventory:
        self._read_version = self._file.version()
        node = self._file.current()
        self._enumerate()
        results = [self._describe(gpu) for gpu in node.gpus]
        gpus = tuple(each for each in results if isinstance(each, GpuFacts))
        unreadable = (each for each in results if isinstance(each, UnreadableGpu))
        return Inventory(
            driver_version=None if self._failed("driverVersion") else node.driver_version,
            cuda_version=None if self._failed("cudaVersion") else node.cuda_version,
            gpus=gpus,
            unreadable=tuple(sorted(unreadable, key=lambda each: each.label)),
            health=tuple(sorted(map(self._health, gpus), key=lambda each: each.uuid)),
            simulated=True,
        )

    def wait_events(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        error = self._failed("wait")
        if error:
            raise AdapterError(f"waiting for simulated GPU events failed: {error}")
        end_s = monotonic() + timeout_s
        while not self._file.closed:
            events = self._file.new_events()
            left_s = end_s - monotonic()
            if events or left_s <= 0 or self._file.version() != self._read_version:
                return events
            self._file.pause(min(_POLL_S, left_s))
        return ()

    def boot_id(self) -> str:
        if self._failed("bootId"):
            raise AdapterError("the simulated boot id cannot be read")
        return self._file.last_good().boot_id or self._sysfs.boot_id()

    def close(self) -> None:
        """End waits, now and from now on."""
        self._file.close()

    def _enumerate(self) -> None:
        error = self._failed("enumerate")
        if error == NO_DEVICES:
            raise DriverNotLoaded(
                "the simulated driver finds no GPU although the kernel lists some: "
                "it is still starting, or it failed"
            )
        if error in _AWAY:
            raise DriverNotLoaded(
                f"the simulated driver is not there: {error}; "
                "take the fault out of the --simulate file"
            )
        if error:
            raise AdapterError(f"enumeration of simulated GPUs failed: {error}")

    def _describe(self, gpu: GpuFacts) -> GpuFacts | UnreadableGpu:
        for call in ("handle", "uuid"):
            error = self._failed(call, gpu)
            if error:
                return _unreadable(f"index {gpu.index}", call, error)
        facts = gpu
        for call, unknown in _UNKNOWN.items():
            error = self._failed(call, gpu)
            if error in _LOST:
                return _unreadable(gpu.uuid, call, error)
            if error:
                facts = replace(facts, **unknown)
                facts = replace(facts, minor=facts.index) if call == "minor" else facts
        return facts

    def _health(self, gpu: GpuFacts) -> DeviceHealth:
        if self._failed("events", gpu):
            return DeviceHealth(
                uuid=gpu.uuid,
                status=HealthStatus.UNKNOWN,
                message="this GPU reports no events",
            )
        return DeviceHealth(uuid=gpu.uuid, status=HealthStatus.HEALTHY)

    def _failed(self, call: str, gpu: GpuFacts | None = None) -> str:
        """The error of a call, after its delay; empty where it succeeds."""
        fault = self._file.fault(call, gpu.uuid if gpu is not None else None)
        return wait_out(self._file, fault)


def wait_out(file: SimulationFile, fault: Fault | None) -> str:
    """Wait for a fault's delay and give its error; empty where there is none."""
    if fault is None:
        return ""
    if fault.delay_s:
        file.pause(fault.delay_s)
    return fault.error or ""


def _unreadable(label: str, call: str, error: str) -> UnreadableGpu:
    return UnreadableGpu(
        label=label,
        text=(
            f"GPU {label}: simulated query for its {call} failed: {error}; "
            "take the fault out of the --simulate file"
        ),
    )
