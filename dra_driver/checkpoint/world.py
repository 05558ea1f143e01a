"""All that the hook needs from the world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dra_driver.model.cuda import ProcessRef
from dra_driver.model.device import Inventory
from dra_driver.model.record import Record
from dra_driver.ports import (
    Clock,
    Containers,
    CudaProcesses,
    EventSink,
    GpuControl,
    OperationStore,
    PodEvents,
    PodReader,
    PodResources,
    ProcessOwners,
    Recorder,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWorld:
    """Ports and values of one node.

    Attributes:
        records: of all claims; raises AdapterError.
        inventory: as last read; None while there is no GPU driver.
        plugin: CRIU has its CUDA plugin and the program that it calls.
    """

    node: str
    boot_id: str
    cuda: CudaProcesses
    containers: Containers
    owners: ProcessOwners
    pods: PodResources
    pod_reader: PodReader
    gpus: GpuControl
    records: Callable[[], tuple[Record, ...]]
    inventory: Callable[[], Inventory | None]
    plugin: Callable[[], bool]
    store: OperationStore
    events: EventSink
    pod_events: PodEvents
    clock: Clock
    recorder: Recorder

    def alive(self, process: ProcessRef) -> bool:
        """Raises AdapterError."""
        owner = self.owners.owner(process.pid)
        return owner is not None and owner.started == process.started
