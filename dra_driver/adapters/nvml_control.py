"""Compute modes and processes of GPUs through NVML."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from dra_driver.adapters.nvml import NvmlGpus
from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import ComputeMode, GpuProcess

_SERVER = "nvidia-cuda-mps-server"
_EXCLUSIVE_THREAD = 1
_MODES = {
    ComputeMode.DEFAULT: 0,
    ComputeMode.PROHIBITED: 2,
    ComputeMode.EXCLUSIVE_PROCESS: 3,
}
"""nvml.h, nvmlComputeMode_t."""


class NvmlControl:
    """`GpuControl` on NVML; safe to use from several threads.

    Args:
        gpus: whose open driver it uses.
    """

    def __init__(self, gpus: NvmlGpus) -> None:
        self._gpus = gpus

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode:
        with self._gpus.lend(gpu, "query for the compute mode") as (nvml, handle):
            number = nvml.nvmlDeviceGetComputeMode(handle)
        if number == _EXCLUSIVE_THREAD:
            # nvml.h: "Support Removed"; where it still stands, one process has the GPU as well.
            return ComputeMode.EXCLUSIVE_PROCESS
        for mode, known in _MODES.items():
            if number == known:
                return mode
        raise AdapterError(
            f"GPU {gpu} is in a compute mode that this release does not know: {number}; "
            "set another one with nvidia-smi -c, or update the driver of shares"
        )

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None:
        doing = f"setting the compute mode {mode}"
        with self._gpus.lend(gpu, doing) as (nvml, handle):
            try:
                nvml.nvmlDeviceSetComputeMode(handle, _MODES[mode])
            except nvml.NVMLError_NotSupported as error:
                raise AdapterError(
                    f"GPU {gpu} has no compute modes ({error}): it is in MIG mode, or a board "
                    "without them; it cannot be shared with MPS, use it whole",
                    permanent=True,
                ) from error
            except nvml.NVMLError_NoPermission as error:
                raise AdapterError(
                    f"the compute mode of GPU {gpu} cannot be set ({error}): run as root of the "
                    "host with CAP_SYS_ADMIN, not of a user namespace",
                    permanent=True,
                ) from error

    def processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        """Compute processes, by pid, of drivers since 510.

        NVML lists clients of MPS apart from all others; the server itself stands among the others
        and is told by its program's name. That name proves nothing: whoever acts on it compares the
        pid with the one that the control daemon gives.
        """
        with self._gpus.lend(gpu, "query for the processes") as (nvml, handle):
            found = {
                entry.pid: GpuProcess(
                    pid=entry.pid,
                    memory_bytes=entry.usedGpuMemory,
                    mps=_is_server(nvml, entry.pid),
                )
                for entry in nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
            }
            for entry in _clients(nvml, handle):
                known = found.get(entry.pid)
                sizes = (entry.usedGpuMemory, known.memory_bytes if known is not None else None)
                told = [size for size in sizes if size is not None]
                found[entry.pid] = GpuProcess(
                    pid=entry.pid, memory_bytes=max(told, default=None), mps=True
                )
        return tuple(process for _, process in sorted(found.items()))


def _clients(nvml: Any, handle: Any) -> list[Any]:
    """Clients of MPS; boards before Volta do not tell them apart and have none that we share."""
    try:
        entries: list[Any] = nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
    except nvml.NVMLError_NotSupported:
        return []
    return entries


def _is_server(nvml: Any, pid: int) -> bool:
    try:
        name = nvml.nvmlSystemGetProcessName(pid)
    except (nvml.NVMLError, UnicodeDecodeError):
        return False  # it has ended, or has a name that NVML cannot give
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return PurePath(text).name == _SERVER
