"""What a restore needs to be like what was checkpointed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dra_driver.model.device import GpuUuid
from dra_driver.model.share import Sharing


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGpu:
    """A GPU that the container could see, and what its claims held of it.

    Attributes:
        compute_capability: (major, minor).
        memory_bytes: of the whole board; None where it does not tell.
        held_memory_mib: of the claim.
        sharing: None: the GPU was given whole.
    """

    uuid: GpuUuid
    product_name: str
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    held_memory_mib: int = 0
    sharing: Sharing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Taken when a checkpoint begins; kept with its operation, never in the runtime's archive.

    Attributes:
        node: CRIU restores onto the GPUs of this node alone.
        driver_version: as the GPU driver spells it; None where there is none.
        library: the CUDA driver library's path in the container, which names its version; empty
            where none is mounted. CRIU maps this very file.
        gpus: by UUID.
        gpu_bytes: what all processes held on the GPUs.
        container_paths: mount points that the claims' CDI specs make, sorted.
        device_paths: device nodes that they make, sorted.
        driver_owned: the driver moved the processes off their GPUs, so that they can go on on
            other ones; else they come back to the same.
        host_only: the state on the GPUs is not part of the checkpoint.
        simulated: no hardware stood behind the GPUs.
    """

    node: str
    driver_version: str | None
    cuda_version: str | None
    library: str
    gpus: tuple[ManifestGpu, ...]
    gpu_bytes: int = 0
    container_paths: tuple[str, ...] = ()
    device_paths: tuple[str, ...] = ()
    driver_owned: bool = False
    host_only: bool = False
    simulated: bool = False


class Field(StrEnum):
    """In which respect a restore does not fit."""

    CHECKPOINT = "checkpoint"
    NODE = "node"
    COUNT = "gpuCount"
    MODEL = "gpuModel"
    CAPABILITY = "computeCapability"
    DRIVER = "driverVersion"
    LIBRARY = "cudaLibrary"
    MODE = "sharing"
    MEMORY = "memory"
    MOUNTS = "mountPoints"
    DEVICES = "deviceNodes"
    GPU = "gpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """`recorded` and `actual` are for people."""

    field: Field
    recorded: str
    actual: str

    def __str__(self) -> str:
        return f"{self.field} was {self.recorded}, here it is {self.actual}"
