"""NVML, where pynvml is installed. Every call opens and closes it: steps are processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

DEFAULT, EXCLUSIVE_PROCESS = 0, 3


def load() -> Any:
    """The module pynvml, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            import pynvml  # noqa: PLC0415 - a lent machine may lack it
    except ImportError:
        return None
    return pynvml


@contextmanager
def session() -> Iterator[Any]:
    module = load()
    if module is None:
        raise RuntimeError("there is no pynvml: pip install nvidia-ml-py")
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        raise RuntimeError(f"NVML does not start: {error}") from error
    try:
        yield module
    finally:
        module.nvmlShutdown()


def gpus() -> tuple[list[str], str]:
    """UUIDs, and the driver's version."""
    with session() as module:
        handles = [
            module.nvmlDeviceGetHandleByIndex(index) for index in range(module.nvmlDeviceGetCount())
        ]
        uuids = [str(module.nvmlDeviceGetUUID(handle)) for handle in handles]
        return uuids, str(module.nvmlSystemGetDriverVersion())


def compute_mode(gpu: str) -> int:
    with session() as module:
        return int(module.nvmlDeviceGetComputeMode(module.nvmlDeviceGetHandleByUUID(gpu)))


def set_compute_mode(gpu: str, mode: int) -> None:
    with session() as module:
        module.nvmlDeviceSetComputeMode(module.nvmlDeviceGetHandleByUUID(gpu), mode)


def facts(gpu: str) -> dict[str, Any]:
    with session() as module:
        handle = module.nvmlDeviceGetHandleByUUID(gpu)
        questions = {
            "name": module.nvmlDeviceGetName,
            "persistence": module.nvmlDeviceGetPersistenceMode,
            "mode": module.nvmlDeviceGetComputeMode,
            "mig": module.nvmlDeviceGetMigMode,
            "capability": module.nvmlDeviceGetCudaComputeCapability,
            "pcie_generation": module.nvmlDeviceGetCurrPcieLinkGeneration,
            "pcie_width": module.nvmlDeviceGetCurrPcieLinkWidth,
        }
        return {name: _answer(module, ask, handle) for name, ask in questions.items()}


def processes(gpu: str) -> dict[str, Any]:
    """Compute processes and MPS compute processes: pid and memory in MiB."""
    with session() as module:
        handle = module.nvmlDeviceGetHandleByUUID(gpu)
        found = {}
        for name, ask in (
            ("compute", module.nvmlDeviceGetComputeRunningProcesses),
            ("mps", module.nvmlDeviceGetMPSComputeRunningProcesses),
        ):
            listed = _answer(module, ask, handle)
            found[name] = (
                listed
                if isinstance(listed, str)
                else [
                    [each.pid, each.usedGpuMemory and each.usedGpuMemory >> 20] for each in listed
                ]
            )
        return found


def _answer(module: Any, ask: Any, handle: Any) -> Any:
    try:
        return ask(handle)
    except module.NVMLError as error:
        return str(error)
