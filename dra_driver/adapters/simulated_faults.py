"""What goes wrong on a simulated node: faults of calls, and events."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.adapters.yaml_fields import FieldError, Fields
from dra_driver.model.device import GpuFacts, GpuUuid
from dra_driver.model.health import GpuEvent

GPU_CALLS = (
    "handle",
    "uuid",
    "minor",
    "name",
    "brand",
    "architecture",
    "memory",
    "cores",
    "computeCapability",
    "pci",
    "pcieRoot",
    "numaNode",
    "nvlink",
    "mig",
    "events",
    "computeMode",
    "setComputeMode",
    "processes",
    "setTimeSlice",
    "mps.start",
    "mps.command",
    "mps.server",
    "mps.status",
)
NODE_CALLS = ("enumerate", "driverVersion", "cudaVersion", "bootId", "wait")
NO_DEVICES = "NO_DEVICES"
"""Error of `enumerate`: the driver finds no GPU although the kernel lists some."""
ERRORS = (
    "UNINITIALIZED",
    "INVALID_ARGUMENT",
    "NOT_SUPPORTED",
    "NO_PERMISSION",
    "NOT_FOUND",
    "INSUFFICIENT_POWER",
    "DRIVER_NOT_LOADED",
    "TIMEOUT",
    "IRQ_ISSUE",
    "LIBRARY_NOT_FOUND",
    "FUNCTION_NOT_FOUND",
    "CORRUPTED_INFOROM",
    "GPU_IS_LOST",
    "RESET_REQUIRED",
    "OPERATING_SYSTEM",
    "LIB_RM_VERSION_MISMATCH",
    "IN_USE",
    "MEMORY",
    "NO_DATA",
    "NOT_READY",
    "UNKNOWN",
    NO_DEVICES,
)
_CALL_ALIASES = {
    "migMode": "mig",
    "smCount": "cores",
    "memoryInfo": "memory",
    "minorNumber": "minor",
}

_FAULT = ("gpu", "call", "error", "delay", "times")
_EVENT = ("gpu", "xid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong, or takes long, when a call is made.

    Attributes:
        gpu: None: any.
        error: NVML's name without NVML_ERROR_; None where the call only takes long.
        times: how many calls it hits; None: all.
    """

    call: str
    gpu: GpuUuid | None = None
    error: str | None = None
    delay_s: float = 0.0
    times: int | None = None


def parse_fault(data: object, path: str, gpus: tuple[GpuFacts, ...]) -> Fault:
    """Check one entry of `faults`; raises FieldError."""
    fields = Fields(data, path, _FAULT)
    call = _CALL_ALIASES.get(text := fields.text("call", "?"), text)
    if call not in GPU_CALLS and call not in NODE_CALLS:
        known = ", ".join((*NODE_CALLS, *GPU_CALLS))
        raise fields.error("call", f"is not a known call; known: {known}")
    error = fields.text("error", "").removeprefix("NVML_ERROR_") if fields.has("error") else None
    if error is not None and error not in ERRORS:
        raise fields.error("error", f"is not a known error; known: {', '.join(ERRORS)}")
    if error is None and not fields.has("delay"):
        raise FieldError(f"{fields.path_of('error')} is missing: give an error, a delay or both")
    uuid = gpu_of(fields, gpus) if fields.has("gpu") else None
    if uuid is not None and call in NODE_CALLS:
        raise fields.error("gpu", f"does not go with {call}, which concerns the whole node")
    if uuid is not None and all(gpu.uuid != uuid for gpu in gpus):
        raise fields.error("gpu", "is not among gpus")
    return Fault(
        call=call,
        gpu=uuid,
        error=error,
        delay_s=fields.duration_s("delay") if fields.has("delay") else 0.0,
        times=fields.integer("times", 1, minimum=1) if fields.has("times") else None,
    )


def parse_event(data: object, path: str, gpus: tuple[GpuFacts, ...]) -> GpuEvent:
    """Check one entry of `events`; its GPU may be one that does not exist. Raises FieldError."""
    fields = Fields(data, path, _EVENT)
    for name in _EVENT:
        if not fields.has(name):
            raise FieldError(f"{fields.path_of(name)} is missing")
    return GpuEvent(uuid=gpu_of(fields, gpus), xid=fields.integer("xid", 0))


def gpu_of(fields: Fields, gpus: tuple[GpuFacts, ...]) -> GpuUuid:
    """The field `gpu`: by UUID, or by index where the UUID is made from the node's name.

    A UUID need not be among `gpus`. Raises FieldError.
    """
    if not isinstance(fields.value("gpu"), int):
        return GpuUuid(fields.text("gpu", ""))
    index = fields.integer("gpu", 0)
    for gpu in gpus:
        if gpu.index == index:
            return gpu.uuid
    raise fields.error("gpu", "is not the index of one of gpus")
