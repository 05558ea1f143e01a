"""CUDA states of a node whose GPUs are simulated: nothing there can use CUDA."""

from __future__ import annotations

from dra_driver.errors import AdapterError
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline


class NoCuda:
    """`CudaProcesses` without any."""

    def state(self, process: ProcessRef, deadline: Deadline) -> CudaState | None:
        del process, deadline
        return None

    def lock(self, process: ProcessRef, deadline: Deadline) -> None:
        raise _none(process, deadline)

    def checkpoint(self, process: ProcessRef, deadline: Deadline) -> None:
        raise _none(process, deadline)

    def restore(
        self, process: ProcessRef, mapping: tuple[DeviceMapping, ...], deadline: Deadline
    ) -> None:
        del mapping
        raise _none(process, deadline)

    def unlock(self, process: ProcessRef, deadline: Deadline) -> None:
        raise _none(process, deadline)


def _none(process: ProcessRef, deadline: Deadline) -> AdapterError:
    del deadline
    return AdapterError(
        f"process {process.pid} uses no CUDA: the GPUs are simulated", permanent=True
    )
