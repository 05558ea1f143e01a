"""The seams: everything the driver needs from the world, one Protocol each.

All calls block. Verbs of state (apply, write, remove, put, delete) are idempotent and durable on
return. Adapters raise `AdapterError` and its subclasses; nothing else crosses a port.
"""

from dra_driver.ports.checkpoint import (
    ClaimMarkers,
    Containers,
    CudaProcesses,
    OperationStore,
    PodEvents,
)
from dra_driver.ports.kube import ApiProbe, ClaimReader, EventSink, PodReader, SliceApi, Watch
from dra_driver.ports.mps import (
    ClientProver,
    GpuControl,
    MpsControl,
    MpsDaemons,
    MpsServers,
    MpsStore,
    ShareFolders,
)
from dra_driver.ports.node import (
    Clock,
    DriverFiles,
    GpuLibrary,
    Journal,
    JournalTransaction,
    JournalView,
    Json,
    Locks,
    Recorder,
    SpecStore,
    StagedSpec,
    TimeSlicer,
)
from dra_driver.ports.sharing import (
    ClientTerminator,
    PodResources,
    ProcessOwners,
    ShareSupervisor,
    SharingStates,
    SharingWatch,
)

__all__ = [
    "ApiProbe",
    "ClaimMarkers",
    "ClaimReader",
    "ClientProver",
    "ClientTerminator",
    "Clock",
    "Containers",
    "CudaProcesses",
    "DriverFiles",
    "EventSink",
    "GpuControl",
    "GpuLibrary",
    "Journal",
    "JournalTransaction",
    "JournalView",
    "Json",
    "Locks",
    "MpsControl",
    "MpsDaemons",
    "MpsServers",
    "MpsStore",
    "OperationStore",
    "PodEvents",
    "PodReader",
    "PodResources",
    "ProcessOwners",
    "Recorder",
    "ShareFolders",
    "ShareSupervisor",
    "SharingStates",
    "SharingWatch",
    "SliceApi",
    "SpecStore",
    "StagedSpec",
    "TimeSlicer",
    "Watch",
]
