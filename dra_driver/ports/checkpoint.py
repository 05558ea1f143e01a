"""Ports of the checkpoint hook."""

from __future__ import annotations

from typing import Protocol

from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline


class CudaProcesses(Protocol):
    """CUDA state transitions of processes, each in a helper that can be killed.

    A call that has not ended by its deadline is killed; what it did until then is not known.

    Raises:
        OutOfTime: by the deadline; look at the state.
        CudaFailed: the driver refused or failed; the text has the name of its result.
        AdapterError: there is no driver that can do it, or the process ended.
    """

    def state(self, process: ProcessRef, deadline: Deadline) -> CudaState | None:
        """None: it does not use CUDA."""
        ...

    def lock(self, process: ProcessRef, deadline: Deadline) -> None: ...

    def checkpoint(self, process: ProcessRef, deadline: Deadline) -> None: ...

    def restore(
        self, process: ProcessRef, mapping: tuple[DeviceMapping, ...], deadline: Deadline
    ) -> None:
        """Give its memory back to it, onto the same GPUs where `mapping` is empty.

        A mapping has to name every GPU of the node that the process could see.
        """
        ...

    def unlock(self, process: ProcessRef, deadline: Deadline) -> None: ...
