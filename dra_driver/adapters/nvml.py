"""The GPUs of this node through NVML, the one home of pynvml.

pynvml keeps its library in module globals, so a process holds one open `NvmlGpus` at a time.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Condition, Event
from typing import Any

from dra_driver import log
from dra_driver.adapters.nvml_reader import GpuReading, NvmlReader
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.model.device import GpuFacts, GpuUuid, Inventory, UnreadableGpu
from dra_driver.model.health import DeviceHealth, GpuEvent, HealthStatus
from dra_driver.plan.topology import nvlink_domains

with warnings.catch_warnings():
    # The project depends on the distribution of this name, whose module nvidia-ml-py provides.
    warnings.filterwarnings("ignore", "The pynvml package is deprecated", FutureWarning)
    import pynvml

LIBRARY = "libnvidia-ml.so.1"
_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
    "lib",
)
_WAIT_PIECE_S = 0.5
"""Longest single wait in NVML; `close` and a new session have to wait for it."""

_log = log.get(__name__)


def find_library(driver_root: Path) -> Path | None:
    """Find NVML below the folder where NVIDIA's files are."""
    paths = (driver_root / folder / LIBRARY for folder in _FOLDERS)
    return next((path for path in paths if path.exists()), None)


class NvmlGpus:
    """`GpuLibrary` on NVML; safe to use from several threads.

    NVML counts GPUs once, when it is initialised. So it is initialised again by the read that
    follows one which found no GPU or missed one, and a driver that is loaded late or again is
    followed.

    Args:
        driver_root: where NVIDIA's files are; "/" also asks the dynamic linker.
        sysfs: of the host.
    """

    def __init__(self, *, driver_root: Path, sysfs: Sysfs) -> None:
        self._driver_root = driver_root
        self._sysfs = sysfs
        self._reader = NvmlReader(pynvml, sysfs)
        self._closed = Event()
        self._ending = Event()  # set while the session is about to end: waits must return
        self._session = Condition()  # guards everything below
        self._open = False
        self._reopen = False
        self._waiters = 0
        self._events: Any | None = None
        self._watched: frozenset[int] = frozenset()

    def inventory(self) -> Inventory:
        with self._session:
            if self._open and self._reopen:
                self._end_session()
            if not self._open:
                self._begin_session()
            try:
                return self._read()
            except pynvml.NVMLError as error:
                self._reopen = True
                raise _failure("enumeration", error) from error

    def wait_events(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        with self._session:
            if not self._open and not self._closed.is_set():
                raise AdapterError("GPU events need an open driver: read the inventory first")
            events = self._events
            if events is not None:
                self._waiters += 1
        if events is None:
            self._closed.wait(timeout_s)  # no GPU reports events, so there is nothing to wait for
            return ()
        try:
            return self._wait(events, timeout_s)
        finally:
            with self._session:
                self._waiters -= 1
                self._session.notify_all()

    def boot_id(self) -> str:
        return self._sysfs.boot_id()

    @contextmanager
    def lend(self, gpu: GpuUuid, doing: str) -> Iterator[tuple[Any, Any]]:
        """Give pynvml and a GPU's handle; the driver stays open for the block.

        Raises:
            AdapterError: for an error of pynvml, from the block too; `doing` says of what.
        """
        with self._session:
            if not self._open:
                self._begin_session()
            try:
                yield pynvml, pynvml.nvmlDeviceGetHandleByUUID(gpu)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_UNINITIALIZED:
                    self._end_session()
                raise _failure(f"{doing} of GPU {gpu}", error) from error

    def close(self) -> None:
        """End waits and let go of the driver, for good."""
        self._closed.set()
        with self._session:
            if self._open:
                self._end_session()

    def _wait(self, events: Any, timeout_s: float) -> tuple[GpuEvent, ...]:
        left_s = timeout_s
        while left_s > 0 and not self._ending.is_set():
            piece_s = min(left_s, _WAIT_PIECE_S)
            left_s -= piece_s
            try:
                data = pynvml.nvmlEventSetWait_v2(events, max(1, round(piece_s * 1000)))
            except pynvml.NVMLError_Timeout:
                continue
            except pynvml.NVMLError as error:
                # A lost GPU ends every wait at once; the next session does not register it.
                with self._session:
                    self._reopen = True
                raise _failure("waiting for events", error) from error
            if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
                return (GpuEvent(uuid=self._reader.uuid_of(data.device), xid=data.eventData),)
        return ()

    def _begin_session(self) -> None:
        if self._closed.is_set():
            raise AdapterError("the GPU library is closed: the process is shutting down")
        pynvml.nvmlLib = self._load()
        # Pointers into the library of before, which a new driver may have replaced.
        pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise _failure("initialisation", error) from error
        self._open, self._reopen = True, False

    def _load(self) -> ctypes.CDLL:
        path = find_library(self._driver_root)
        way_out = "install NVIDIA's driver, or set --driver-root to where it is"
        if path is None and self._driver_root != Path("/"):
            raise DriverNotLoaded(
                f"there is no {LIBRARY} in the library folders of {self._driver_root}: {way_out}"
            )
        try:
            # The file behind the link has the driver's version in its name. The linker tells
            # libraries apart by name, so the link alone would give the one of before an update.
            return ctypes.CDLL(LIBRARY if path is None else str(path.resolve()))
        except OSError as error:
            raise DriverNotLoaded(f"cannot load NVML: {error}; {way_out}") from error

    def _end_session(self) -> None:
        self._ending.set()
        self._session.wait_for(lambda: self._waiters == 0)
        self._ending.clear()
        if not self._open:
            return  # another thread ended it meanwhile
        self._open = False
        try:
            if self._events is not None:
                pynvml.nvmlEventSetFree(self._events)
            pynvml.nvmlShutdown()
        except pynvml.NVMLError as error:
            _log.debug("NVML did not shut down cleanly", error=str(error))
        pynvml.nvmlLib = None
        self._events, self._watched = None, frozenset()

    def _read(self) -> Inventory:
        count = pynvml.nvmlDeviceGetCount()
        listed = self._sysfs.nvidia_gpus()
        if not count:
            self._reopen = True
            if listed:
                raise DriverNotLoaded(
                    f"NVML finds no GPU although the kernel lists {len(listed)} "
                    f"({', '.join(listed)}): the driver is still starting, or it failed: "
                    "see the kernel log"
                )
        self._watch(count)
        results = [self._reader.read(index) for index in range(count)]
        readings = [each for each in results if isinstance(each, GpuReading)]
        unreadable = [each for each in results if isinstance(each, UnreadableGpu)]
        if count < len(listed):
            unreadable += _unlisted(listed, readings)
        self._reopen = self._reopen or bool(unreadable)
        return Inventory(
            driver_version=self._reader.driver_version(),
            cuda_version=self._reader.cuda_version(),
            gpus=_with_domains(readings),
            unreadable=tuple(sorted(unreadable, key=lambda each: each.label)),
            health=tuple(sorted(map(self._health, readings), key=lambda each: each.uuid)),
        )

    def _watch(self, count: int) -> None:
        """Register all GPUs for XIDs, once in a session."""
        if self._events is not None or not count:
            return
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            _log.warning("This driver reports no GPU events", error=str(error))
            return
        watched = {index for index in range(count) if self._register(index, events)}
        if watched:
            self._events, self._watched = events, frozenset(watched)
        else:
            pynvml.nvmlEventSetFree(events)

    def _register(self, index: int, events: Any) -> bool:
        handle = self._reader.handle_of(index)
        if handle is None:
            return False
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError as error:
            _log.info("A GPU reports no events", index=index, error=str(error))
            return False
        return True

    def _health(self, reading: GpuReading) -> DeviceHealth:
        if reading.facts.index in self._watched:
            return DeviceHealth(uuid=reading.facts.uuid, status=HealthStatus.HEALTHY)
        return DeviceHealth(
            uuid=reading.facts.uuid,
            status=HealthStatus.UNKNOWN,
            message="this GPU reports no events",
        )


def _with_domains(readings: list[GpuReading]) -> tuple[GpuFacts, ...]:
    domains = nvlink_domains(
        {each.facts.uuid: each.facts.pci_bus_id or each.facts.uuid for each in readings},
        {each.facts.uuid: each.links for each in readings},
    )
    return tuple(
        replace(each.facts, nvlink_domain=domains.get(each.facts.uuid)) for each in readings
    )


def _unlisted(listed: tuple[str, ...], readings: list[GpuReading]) -> list[UnreadableGpu]:
    """GPUs that the kernel lists and NVML did not take in."""
    read = {each.facts.pci_bus_id for each in readings}
    return [
        UnreadableGpu(
            label=f"PCI {bus_id}",
            text=f"GPU at PCI {bus_id}: the kernel lists it but NVML does not: see the kernel log",
        )
        for bus_id in listed
        if bus_id not in read
    ]


def _failure(doing: str, error: Any) -> AdapterError:
    hints = {
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load NVIDIA's kernel driver",
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install NVIDIA's driver, or set --driver-root",
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the kernel driver and its library are of different versions: "
            "finish the driver's update, or reboot"
        ),
        pynvml.NVML_ERROR_UNINITIALIZED: "the driver was reloaded",
        pynvml.NVML_ERROR_NOT_FOUND: "the driver does not know it: see nvidia-smi -L",
        pynvml.NVML_ERROR_NO_PERMISSION: "run as root with access to /dev/nvidia*",
    }
    away = (
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    )
    hint = hints.get(error.value, "see the kernel log for messages of the GPU driver")
    text = f"NVML {doing} failed: {error}; {hint}"
    return DriverNotLoaded(text) if error.value in away else AdapterError(text)
