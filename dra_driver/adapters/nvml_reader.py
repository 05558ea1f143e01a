"""Reads one GPU through NVML: each query is guarded on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dra_driver import log
from dra_driver.adapters import nvml_tables
from dra_driver.adapters.sysfs import Sysfs, normal_bus_id
from dra_driver.model.device import GpuFacts, GpuUuid, UnreadableGpu

_MAX_LINKS = 36
_log = log.get(__name__)


class GpuGoneError(Exception):
    """A query found that the GPU is lost or has to be reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What was read of one GPU.

    Attributes:
        facts: without the NVLink domain, which depends on the other GPUs.
        links: PCI addresses of the other ends of its active NVLinks.
    """

    facts: GpuFacts
    links: frozenset[str]


class NvmlReader:
    """Reads GPUs one by one.

    Args:
        nvml: the pynvml module, loaded and initialised.
        sysfs: completes what NVML does not know.
    """

    def __init__(self, nvml: Any, sysfs: Sysfs) -> None:
        self._nvml = nvml
        self._sysfs = sysfs

    def read(self, index: int) -> GpuReading | UnreadableGpu:
        """Describe the GPU at an index; one that is lost, now or midway, is unreadable.

        Raises:
            NVMLError: the driver itself went away.
        """
        label = f"index {index}"
        try:
            handle = self._needed("handle", self._nvml.nvmlDeviceGetHandleByIndex, index)
            uuid = GpuUuid(
                nvml_tables.text(self._needed("UUID", self._nvml.nvmlDeviceGetUUID, handle))
            )
            label = uuid
            return self._describe(handle, index, uuid)
        except GpuGoneError as error:
            return UnreadableGpu(label=label, text=f"GPU {label}: {error}")

    def handle_of(self, index: int) -> Any | None:
        """The handle at an index; None where the GPU is lost."""
        return self._optional(
            "handle", self._nvml.nvmlDeviceGetHandleByIndex, index, lost_is_none=True
        )

    def uuid_of(self, handle: Any) -> str:
        """The UUID behind an event's handle; empty where the driver does not know it."""
        if not handle:
            return ""
        return nvml_tables.text(
            self._optional("UUID", self._nvml.nvmlDeviceGetUUID, handle, lost_is_none=True)
        )

    def driver_version(self) -> str | None:
        version = self._optional("driver version", self._nvml.nvmlSystemGetDriverVersion)
        return nvml_tables.text(version) or None

    def cuda_version(self) -> str | None:
        nvml = self._nvml
        number = self._optional("CUDA version", nvml.nvmlSystemGetCudaDriverVersion_v2)
        if number is None:
            number = self._optional("CUDA version", nvml.nvmlSystemGetCudaDriverVersion)
        return nvml_tables.cuda_version(number)

    def _describe(self, handle: Any, index: int, uuid: GpuUuid) -> GpuReading:
        nvml = self._nvml
        total_bytes, reserved_bytes = self._memory(handle)
        capability = self._optional("capability", nvml.nvmlDeviceGetCudaComputeCapability, handle)
        cores = self._optional("core count", nvml.nvmlDeviceGetNumGpuCores, handle)
        arch = self._optional("architecture", nvml.nvmlDeviceGetArchitecture, handle)
        brand = self._optional("brand", nvml.nvmlDeviceGetBrand, handle) or 0
        mig_mode = self._optional("MIG mode", nvml.nvmlDeviceGetMigMode, handle)
        bus_id = self._bus_id(handle)
        facts = GpuFacts(
            uuid=uuid,
            index=index,
            minor=self._minor(handle, index, bus_id),
            product_name=nvml_tables.text(self._optional("name", nvml.nvmlDeviceGetName, handle)),
            brand=nvml_tables.BRANDS.get(brand),
            architecture=nvml_tables.architecture(arch, capability),
            memory_total_bytes=total_bytes,
            memory_reserved_bytes=reserved_bytes,
            sm_count=nvml_tables.sm_count(cores, capability),
            compute_capability=capability,
            pci_bus_id=bus_id,
            pcie_root=self._sysfs.pcie_root(bus_id) if bus_id else None,
            numa_node=self._sysfs.numa_node(bus_id) if bus_id else None,
            mig_enabled=bool(mig_mode and mig_mode[0]),
        )
        return GpuReading(facts=facts, links=self._links(handle))

    def _memory(self, handle: Any) -> tuple[int | None, int]:
        """Total and reserved bytes; drivers before 510 count the reserved part as used."""
        nvml = self._nvml
        memory = self._optional(
            "memory", nvml.nvmlDeviceGetMemoryInfo, handle, version=nvml.nvmlMemory_v2
        )
        if memory is not None:
            return memory.total or None, memory.reserved
        memory = self._optional("memory", nvml.nvmlDeviceGetMemoryInfo, handle)
        return (memory.total or None, 0) if memory is not None else (None, 0)

    def _bus_id(self, handle: Any) -> str | None:
        pci = self._optional("PCI address", self._nvml.nvmlDeviceGetPciInfo_v3, handle)
        return normal_bus_id(nvml_tables.text(pci.busId)) if pci is not None else None

    def _minor(self, handle: Any, index: int, bus_id: str | None) -> int:
        minor: int | None = self._optional(
            "minor number", self._nvml.nvmlDeviceGetMinorNumber, handle
        )
        if minor is None and bus_id is not None:
            minor = self._sysfs.minor(bus_id)
        return index if minor is None else minor

    def _links(self, handle: Any) -> frozenset[str]:
        nvml = self._nvml
        ends = set()
        for link in range(_MAX_LINKS):
            active = self._optional("NVLink state", nvml.nvmlDeviceGetNvLinkState, handle, link)
            if active is None:
                break  # NotSupported without NVLink, InvalidArgument behind the last link
            if not active:
                continue
            kind = self._optional(
                "NVLink peer", nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link
            )
            if kind == nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU:
                continue  # a link to the processor joins no GPUs
            pci = self._optional("NVLink peer", nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            end = normal_bus_id(nvml_tables.text(pci.busId)) if pci is not None else None
            if end is not None:
                ends.add(end)
        return frozenset(ends)

    def _needed(self, what: str, query: Callable[..., Any], *args: Any) -> Any:
        try:
            return query(*args)
        except (self._nvml.NVMLError_Uninitialized, self._nvml.NVMLError_DriverNotLoaded):
            raise
        except self._nvml.NVMLError as error:
            raise self._gone(what, error) from error

    def _optional(
        self,
        what: str,
        query: Callable[..., Any],
        *args: Any,
        lost_is_none: bool = False,
        **kwargs: Any,
    ) -> Any | None:
        nvml = self._nvml
        try:
            return query(*args, **kwargs)
        except (nvml.NVMLError_Uninitialized, nvml.NVMLError_DriverNotLoaded):
            raise
        except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_ResetRequired) as error:
            if lost_is_none:
                return None
            raise self._gone(what, error) from error
        except nvml.NVMLError as error:
            _log.debug("NVML does not answer a query", query=what, error=str(error))
            return None

    def _gone(self, what: str, error: Exception) -> GpuGoneError:
        return GpuGoneError(
            f"NVML query for its {what} failed: {error}; look for XIDs in the kernel log, "
            "then reset or replace the GPU"
        )
