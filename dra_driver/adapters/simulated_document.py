"""A simulated node as a value, and its YAML document.

driverVersion, cudaVersion, bootId, and lists of gpus, faults, events and processes; docs of each
field are the tables below. A field of a GPU that is left out comes from its profile; null means
that the board does not say. `uuid: auto` gives a UUID made from the node's name and the index, so
that one file serves many nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from uuid import NAMESPACE_DNS, uuid5

from dra_driver.adapters.profiles import ALIASES, BOARDS, DEFAULT_BOARD, Board, board
from dra_driver.adapters.simulated_faults import Fault, gpu_of, parse_event, parse_fault
from dra_driver.adapters.sysfs import normal_bus_id
from dra_driver.adapters.yaml_fields import FieldError, Fields, shown
from dra_driver.model.device import GpuFacts, GpuUuid
from dra_driver.model.health import GpuEvent

DEFAULT_DRIVER = "570.133.20"
DEFAULT_CUDA = "12.8"

_DOCUMENT = ("driverVersion", "cudaVersion", "bootId", "gpus", "faults", "events", "processes")
_GPU = (
    "uuid",
    "profile",
    "index",
    "minor",
    "productName",
    "brand",
    "architecture",
    "memoryTotal",
    "memoryReserved",
    "smCount",
    "computeCapability",
    "pciBusId",
    "pcieRoot",
    "numaNode",
    "nvlinkDomain",
    "migEnabled",
    "mps",
)

_PID_MAX = 1 << 22
_PROCESS = ("gpu", "pid", "memory", "mps")

_UUID = re.compile(r"^GPU-[0-9A-Za-z-]{1,60}$")
_CAPABILITY = re.compile(r"^(\d{1,2})\.(\d)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedProcess:
    """A process that computes on a simulated GPU; nothing has to run.

    Attributes:
        gpu: UUID; an index in the document, as faults have it.
        pid: of this host; who runs is looked up like that of any process.
        memory_bytes: `memory`, an amount such as 5Gi; None (null): the driver does not say.
        mps: a client of the GPU's MPS server; left out: it is.
    """

    gpu: GpuUuid
    pid: int
    memory_bytes: int | None
    mps: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """A simulated node. GPUs are by index, processes by pid; the rest as the document has it."""

    driver_version: str = DEFAULT_DRIVER
    cuda_version: str = DEFAULT_CUDA
    boot_id: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    faults: tuple[Fault, ...] = ()
    events: tuple[GpuEvent, ...] = ()
    processes: tuple[SimulatedProcess, ...] = ()


def parse_simulation(data: object, *, node_name: str) -> Simulation:
    """Check a document and give the node that it describes.

    Raises:
        FieldError: the text names the field by its path.
    """
    fields = Fields(data, "", _DOCUMENT)
    if not fields.has("gpus"):
        raise FieldError("gpus is missing: list the GPUs, or write gpus: [] for a node without")
    gpus = tuple(
        _gpu(Fields(item, path, _GPU), position, node_name)
        for position, (path, item) in enumerate(fields.items("gpus"))
    )
    for name in ("uuid", "index", "minor", "pci_bus_id"):
        _unique(gpus, name)
    return Simulation(
        driver_version=fields.text("driverVersion", DEFAULT_DRIVER),
        cuda_version=fields.text("cudaVersion", DEFAULT_CUDA),
        boot_id=fields.text("bootId", "") if fields.has("bootId") else None,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        faults=tuple(parse_fault(item, path, gpus) for path, item in fields.items("faults")),
        events=tuple(parse_event(item, path, gpus) for path, item in fields.items("events")),
        processes=_processes(fields, gpus),
    )


def _processes(fields: Fields, gpus: tuple[GpuFacts, ...]) -> tuple[SimulatedProcess, ...]:
    found: dict[tuple[int, GpuUuid], SimulatedProcess] = {}
    for path, item in fields.items("processes"):
        process = _process(Fields(item, path, _PROCESS), gpus)
        if found.setdefault((process.pid, process.gpu), process) is not process:
            raise FieldError(f"{path}.pid: {process.pid} stands twice for GPU {process.gpu}")
    return tuple(process for _, process in sorted(found.items()))


def _process(fields: Fields, gpus: tuple[GpuFacts, ...]) -> SimulatedProcess:
    for name in ("gpu", "pid", "memory"):
        if not fields.has(name):
            raise FieldError(f"{fields.path_of(name)} is missing")
    gpu = gpu_of(fields, gpus)
    if all(known.uuid != gpu for known in gpus):
        raise fields.error("gpu", "is not among gpus")
    pid = fields.integer("pid", 1, minimum=1)
    if pid > _PID_MAX:
        raise fields.error("pid", f"is more than {_PID_MAX}, the highest of Linux")
    memory_bytes = None if fields.is_null("memory") else fields.size_bytes("memory", 0)
    return SimulatedProcess(
        gpu=gpu, pid=pid, memory_bytes=memory_bytes, mps=fields.flag("mps", default=True)
    )


def _gpu(fields: Fields, position: int, node_name: str) -> GpuFacts:
    index = fields.integer("index", position)
    profile = fields.text("profile", DEFAULT_BOARD)
    model = board(profile)
    if model is None:
        known = ", ".join(sorted({*BOARDS, *ALIASES}))
        raise fields.error("profile", f"is not a known profile; known: {known}")
    facts = GpuFacts(
        uuid=_uuid(fields, index, node_name),
        index=index,
        minor=fields.integer("minor", index),
        numa_node=_optional_number(fields, "numaNode"),
        nvlink_domain=_optional_text(fields, "nvlinkDomain", None),
        pcie_root=_optional_text(fields, "pcieRoot", None),
        pci_bus_id=_bus_id(fields, index),
        mig_enabled=fields.flag("migEnabled", default=False),
        mps_control_only=_control_only(fields),
    )
    return _with_board(facts, fields, model)


def _with_board(facts: GpuFacts, fields: Fields, model: Board) -> GpuFacts:
    known = not fields.is_null("memoryTotal")
    total = fields.size_bytes("memoryTotal", model.total_bytes) if known else None
    # A board that someone made smaller keeps the profile's reserved part only where it fits.
    default = min(model.reserved_bytes, total or 0)
    reserved = fields.size_bytes("memoryReserved", default)
    if total is not None and reserved > total:
        raise fields.error("memoryReserved", "is more than memoryTotal")
    return replace(
        facts,
        product_name=_optional_text(fields, "productName", model.product_name) or "",
        brand=_optional_text(fields, "brand", model.brand),
        architecture=_optional_text(fields, "architecture", model.architecture),
        memory_total_bytes=total,
        memory_reserved_bytes=reserved,
        sm_count=(
            None
            if fields.is_null("smCount")
            else fields.integer("smCount", model.sm_count, minimum=1)
        ),
        compute_capability=_capability(fields, model),
    )


def _uuid(fields: Fields, index: int, node_name: str) -> GpuUuid:
    if not fields.has("uuid"):
        raise FieldError(f"{fields.path_of('uuid')} is missing: write GPU-… or auto")
    text = fields.text("uuid", "")
    if text == "auto":
        return GpuUuid(f"GPU-{uuid5(NAMESPACE_DNS, f'{index}.{node_name}')}")
    if not _UUID.match(text):
        raise fields.error("uuid", "is not a GPU UUID: GPU- and up to 60 letters, digits or dashes")
    return GpuUuid(text)


def _bus_id(fields: Fields, index: int) -> str | None:
    if fields.is_null("pciBusId"):
        return None
    bus_id = normal_bus_id(fields.text("pciBusId", f"{index >> 8:04x}:{index & 0xFF:02x}:00.0"))
    if bus_id is None:
        raise fields.error("pciBusId", 'is not a PCI address such as "0000:1a:00.0"')
    return bus_id


def _capability(fields: Fields, model: Board) -> tuple[int, int] | None:
    if not fields.has("computeCapability"):
        return model.compute_capability
    if fields.is_null("computeCapability"):
        return None
    match = _CAPABILITY.match(str(fields.value("computeCapability")))
    if match is None:
        raise fields.error("computeCapability", 'is not a version such as "9.0"')
    return int(match.group(1)), int(match.group(2))


def _control_only(fields: Fields) -> bool | None:
    if not fields.has("mps"):
        return True
    mps = Fields(fields.value("mps"), fields.path_of("mps"), ("controlOnly",))
    return None if mps.is_null("controlOnly") else mps.flag("controlOnly", default=True)


def _optional_text(fields: Fields, name: str, default: str | None) -> str | None:
    if not fields.has(name):
        return default
    return None if fields.is_null(name) else fields.text(name, "")


def _optional_number(fields: Fields, name: str) -> int | None:
    if not fields.has(name) or fields.is_null(name):
        return None
    number = fields.integer(name, 0, minimum=-1)
    return number if number >= 0 else None


def _unique(gpus: tuple[GpuFacts, ...], name: str) -> None:
    seen = set()
    for gpu in gpus:
        value = getattr(gpu, name)
        if value is not None and value in seen:
            raise FieldError(f"gpus: two GPUs have the {name.replace('_', ' ')} {shown(value)}")
        seen.add(value)
