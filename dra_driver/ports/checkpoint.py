"""Ports of the checkpoint hook."""

from __future__ import annotations

from typing import Protocol

from dra_driver.model.checkpoint import ContainerMemory, Operation
from dra_driver.model.claim import PodRef
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


class Containers(Protocol):
    """Containers as the kernel has them: the processes of a cgroup.

    Raises:
        AdapterError: that cannot be read or done.
    """

    def find(self, container_id: str) -> ProcessRef | None:
        """The first process of a container; None where it has none."""
        ...

    def processes(self, init: ProcessRef) -> tuple[ProcessRef, ...]:
        """All of a container's, by start time: the first one first; none where that has ended."""
        ...

    def frozen(self, init: ProcessRef) -> bool:
        """Whether it is frozen, or being frozen; False where it has ended."""
        ...

    def memory(self, init: ProcessRef) -> ContainerMemory: ...

    def kill(self, processes: tuple[ProcessRef, ...]) -> None:
        """Kill those that still are the processes that are meant; others have ended before."""
        ...


class OperationStore(Protocol):
    """Operations of the hook; what is stored survives the end of this process, however it ends."""

    def load(self) -> tuple[Operation, ...]:
        """All, by start time, then id; what is damaged is kept aside and logged."""
        ...

    def save(self, operation: Operation, *, lasting: bool = True) -> None:
        """Store it; `lasting`, or stored so once: on return no power cut takes it.

        Otherwise one takes it, so that it was never there.
        """
        ...

    def forget(self, operation_id: str) -> None: ...


class PodEvents(Protocol):
    def emit_pod(self, namespace: str, pod: PodRef, *, reason: str, text: str) -> None:
        """Write a Warning Event about a pod, best effort: failures are logged, never raised."""
        ...


class ClaimMarkers(Protocol):
    """Files that mark containers of claims: mounted there, no container can remove them.

    Raises:
        AdapterError: that cannot be done.
    """

    def place(self, claim_uid: str) -> None: ...

    def holds(self, claim_uid: str) -> bool: ...

    def remove(self, claim_uid: str) -> None: ...

    def claims(self) -> tuple[str, ...]:
        """UIDs of claims that have one, sorted."""
        ...
