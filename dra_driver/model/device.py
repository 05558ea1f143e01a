"""What a node's GPUs are: facts as read, before anything is decided about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

from dra_driver.model.health import DeviceHealth

GpuUuid = NewType("GpuUuid", str)


class Tier(StrEnum):
    """How strongly shares of a GPU are enforced, weakest first."""

    NONE = "none"
    COOPERATIVE = "cooperative"
    STANDARD = "standard"


TIER_ORDER: tuple[Tier, ...] = (Tier.NONE, Tier.COOPERATIVE, Tier.STANDARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """One GPU, as NVML and sysfs describe it. None: the board or the driver does not say.

    Attributes:
        uuid: NVML's, "GPU-…"; the only identity that survives reboots and renumbering.
        index: NVML's enumeration order, PCI order by default.
        minor: the N of /dev/nvidiaN; changes across reboots.
        memory_total_bytes, memory_reserved_bytes: NVML's memory info, version 2.
        compute_capability: major, minor.
        pci_bus_id: sysfs spelling, "0000:1a:00.0".
        pcie_root: "pci0000:16", from the sysfs link.
        numa_node: None also where the firmware says -1.
        nvlink_domain: equal for GPUs that reach each other over NVLink or NVSwitch.
        mig_enabled: the board is in MIG mode; it is left out of what is offered.
        mps_control_only: a client of this GPU was proved to connect through `control` alone; None
            where no proof was made.
    """

    uuid: GpuUuid
    index: int
    minor: int
    product_name: str = ""
    brand: str | None = None
    architecture: str | None = None
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int = 0
    sm_count: int | None = None
    compute_capability: tuple[int, int] | None = None
    pci_bus_id: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    nvlink_domain: str | None = None
    mig_enabled: bool = False
    mps_control_only: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableGpu:
    """A GPU that is there but could not be described; the others are not affected.

    Attributes:
        label: how to find it: UUID where known, else "index N".
        text: which query failed, how, and what to do.
    """

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """A node's GPUs at one moment.

    Attributes:
        driver_version: as the driver spells it, "570.133.20".
        cuda_version: the newest CUDA that the driver runs, "12.8".
        gpus: by index, then UUID.
        unreadable: GPUs left out, with the reason; by label.
        health: of `gpus`, by UUID; a GPU without an entry has UNKNOWN health.
        simulated: no hardware stands behind it, device nodes are harmless.
    """

    driver_version: str | None = None
    cuda_version: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    unreadable: tuple[UnreadableGpu, ...] = ()
    health: tuple[DeviceHealth, ...] = ()
    simulated: bool = False
    _by_uuid: dict[GpuUuid, GpuFacts] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _health_by_uuid: dict[str, DeviceHealth] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._by_uuid.update({gpu.uuid: gpu for gpu in self.gpus})
        self._health_by_uuid.update({each.uuid: each for each in self.health})

    def gpu(self, uuid: GpuUuid) -> GpuFacts | None:
        return self._by_uuid.get(uuid)

    def health_of(self, uuid: GpuUuid) -> DeviceHealth | None:
        return self._health_by_uuid.get(uuid)
