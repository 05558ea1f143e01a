"""A node's GPUs as a test states them, whatever adapter reads them afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.model.device import GpuFacts
from tests.builders import BOOT


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """A call that fails; `gpu` None: the node's, or any GPU's."""

    call: str
    error: str
    gpu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGpu:
    """A process on a GPU; `name` of its program is not simulated."""

    gpu: str
    pid: int
    memory_bytes: int | None
    mps: bool = True
    name: str = "python3"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    driver_version: str = "570.133.20"
    cuda_version: str = "12.8"
    boot_id: str = BOOT
    gpus: tuple[GpuFacts, ...] = ()
    faults: tuple[CallFault, ...] = ()
    events: tuple[tuple[str, int], ...] = ()
    processes: tuple[OnGpu, ...] = ()


def simulation_text(state: NodeState) -> str:
    """The document of `--simulate` for a node; JSON is YAML."""
    return json.dumps(
        {
            "driverVersion": state.driver_version,
            "cudaVersion": state.cuda_version,
            "bootId": state.boot_id,
            "gpus": [_gpu(gpu) for gpu in state.gpus],
            "faults": [_fault(fault) for fault in state.faults],
            "events": [{"gpu": uuid, "xid": xid} for uuid, xid in state.events],
            "processes": [
                {
                    "gpu": each.gpu,
                    "pid": each.pid,
                    "memory": each.memory_bytes,
                    "mps": each.mps,
                }
                for each in state.processes
            ],
        },
        indent=1,
    )


def write_whole(path: Path, text: str, *, encoding: str = "utf-8") -> None:
    """Replace a file at once, as a careful editor does."""
    path.with_suffix(".new").write_text(text, encoding=encoding)
    path.with_suffix(".new").replace(path)


def _gpu(gpu: GpuFacts) -> dict[str, Any]:
    capability = gpu.compute_capability
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "minor": gpu.minor,
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "memoryTotal": gpu.memory_total_bytes,
        "memoryReserved": gpu.memory_reserved_bytes,
        "smCount": gpu.sm_count,
        "computeCapability": ".".join(map(str, capability)) if capability else None,
        "pciBusId": gpu.pci_bus_id,
        "pcieRoot": gpu.pcie_root,
        "numaNode": gpu.numa_node,
        "nvlinkDomain": gpu.nvlink_domain,
        "migEnabled": gpu.mig_enabled,
        "mps": {"controlOnly": gpu.mps_control_only},
    }


def _fault(fault: CallFault) -> dict[str, Any]:
    entry: dict[str, Any] = {"call": fault.call, "error": fault.error}
    return entry if fault.gpu is None else entry | {"gpu": fault.gpu}
