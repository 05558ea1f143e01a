"""Compiles the stub of libnvidia-ml and lays it out as a driver would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from dra_driver.model.device import GpuFacts
from tests.fakes.gpu_node import NodeState, OnGpu

_SOURCE = Path(__file__).with_name("nvml_stub.c")
_LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
_CORES_PER_SM = {(7, 5): 64, (8, 0): 64}
_BRANDS = {"Tesla": 2, "Nvidia": 14}
_ARCHITECTURES = {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9}
_SWITCH, _SWITCHES = 2, {"n0": "00000000:CE:00.0", "n1": "00000000:CF:00.0"}
_DOWN = "00000000:CA:00.0"
_CODES = {
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "DRIVER_NOT_LOADED": 9,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "LIB_RM_VERSION_MISMATCH": 18,
    "UNKNOWN": 999,
}


def compile_stub(folder: Path, *, old: bool = False) -> Path:
    """Build the stub; `old` leaves out the functions that old drivers lack."""
    library = folder / f"libnvidia-ml.so.{'440.33.01' if old else '570.133.20'}"
    flags = ["-DOLD"] if old else []
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags, "-o", library, _SOURCE],
        check=True,
    )
    return library


class StubDriver:
    """A driver root and a host root with what NVIDIA's driver puts there.

    Args:
        folder: for both roots; each has its own copy of the library, hence its own state.
        library: a compiled stub.
    """

    def __init__(self, folder: Path, library: Path) -> None:
        self.driver_root = folder / "driver"
        self.host_root = folder / "host"
        self.install(library)
        self.save(NodeState())

    def install(self, library: Path) -> None:
        """Put another library in place, as an update of the driver does."""
        link = self.driver_root / _LIBRARY
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, link.with_name(library.name))
        link.with_suffix(".new").symlink_to(library.name)
        link.with_suffix(".new").replace(link)

    def save(self, state: NodeState) -> None:
        lines = [f"driver {state.driver_version}", f"cuda {_cuda(state.cuda_version)}"]
        no_devices = any(fault.error == "NO_DEVICES" for fault in state.faults)
        if not no_devices:
            lines += [_gpu_line(gpu) for gpu in state.gpus]
        indices: dict[str, int] = {gpu.uuid: place for place, gpu in enumerate(state.gpus)}
        for fault in state.faults:
            away = fault.call == "enumerate" and "DRIVER" in fault.error
            mismatch = fault.error == "LIB_RM_VERSION_MISMATCH"
            call = "init" if away or mismatch else fault.call
            which = "*" if fault.gpu is None else indices[fault.gpu]
            if fault.error != "NO_DEVICES":
                lines.append(f"fault {call} {which} {_CODES[fault.error]}")
        lines += [f"event {indices.get(uuid, -1)} {xid}" for uuid, xid in state.events]
        lines += [_process_line(indices[each.gpu], each) for each in state.processes]
        script = (self.driver_root / _LIBRARY).with_name("nvml")
        script.with_suffix(".new").write_text("".join(f"{line}\n" for line in lines))
        script.with_suffix(".new").replace(script)
        self._save_host(state)

    def _save_host(self, state: NodeState) -> None:
        shutil.rmtree(self.host_root, ignore_errors=True)
        boot_id = self.host_root / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text(f"{state.boot_id}\n")
        for gpu in state.gpus:
            (self.host_root / "proc/driver/nvidia/gpus" / str(gpu.pci_bus_id)).mkdir(parents=True)
            link = self.host_root / "sys/bus/pci/devices" / str(gpu.pci_bus_id)
            device = self.host_root / "sys/devices" / (gpu.pcie_root or "odd") / link.name
            device.mkdir(parents=True)
            node = -1 if gpu.numa_node is None else gpu.numa_node
            (device / "numa_node").write_text(f"{node}\n")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../../devices/{gpu.pcie_root or 'odd'}/{link.name}")


def _gpu_line(gpu: GpuFacts) -> str:
    capability = gpu.compute_capability or (0, 0)
    cores = (gpu.sm_count or 0) * _CORES_PER_SM.get(capability, 128)
    fields = {
        "uuid": gpu.uuid,
        "minor": gpu.minor,
        "name": gpu.product_name.replace(" ", "_"),
        "brand": _BRANDS[gpu.brand or ""],
        "arch": _ARCHITECTURES[gpu.architecture or ""],
        "total": gpu.memory_total_bytes or 0,
        "reserved": gpu.memory_reserved_bytes,
        "cores": cores,
        "cc": ".".join(map(str, capability)),
        "pci": f"0000{gpu.pci_bus_id}".upper(),
        "mig": int(gpu.mig_enabled),
    }
    links = ""
    if gpu.nvlink_domain:
        # The link that is down would join all domains.
        links = f" link={_SWITCH},{_DOWN},0 link={_SWITCH},{_SWITCHES[gpu.nvlink_domain]},1"
    return "gpu " + " ".join(f"{key}={value}" for key, value in fields.items()) + links


def _process_line(index: int, process: OnGpu) -> str:
    memory = "none" if process.memory_bytes is None else process.memory_bytes
    return f"process {index} {process.pid} {memory} {int(process.mps)} /usr/bin/{process.name}"


def _cuda(version: str) -> int:
    major, minor = version.split(".")
    return int(major) * 1000 + int(minor) * 10
