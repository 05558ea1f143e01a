"""MPS of one GPU: one control daemon and one server that its shares are clients of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dra_driver.model.device import GpuUuid
from dra_driver.model.share import GpuShare


class ComputeMode(StrEnum):
    """NVML's compute mode: who may open a context on a GPU."""

    DEFAULT = "Default"
    EXCLUSIVE_PROCESS = "ExclusiveProcess"
    PROHIBITED = "Prohibited"


class MpsPhase(StrEnum):
    """How far sharing of one GPU is.

    FREE: no share, nothing of ours runs. STARTING: the daemon or its server is on its way.
    ACTIVE: every share is enforced. DRAINING: the last share left, the GPU is given back.
    FAULT: what is desired cannot be had now; it is tried again.
    """

    FREE = "Free"
    STARTING = "Starting"
    ACTIVE = "Active"
    DRAINING = "Draining"
    FAULT = "Fault"


class ServerStatus(StrEnum):
    """What a control daemon says of its server; in the last two new clients are refused (807)."""

    ACTIVE = "Active"
    INITIALIZING = "Initializing"
    FAULT = "Fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsLimits:
    """Ceilings that a server holds its clients to, whatever their environment says.

    Attributes:
        compute_percent: 1 to 100, of active threads.
        memory_mib: of device memory of each client process; None: no ceiling.
    """

    compute_percent: int = 100
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsServer:
    pid: int
    status: ServerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonProcess:
    """A running control daemon.

    Attributes:
        started: start time in clock ticks after boot, field 22 of /proc/<pid>/stat: with the pid it
            names one process for ever.
    """

    pid: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that computes on a GPU.

    Attributes:
        pid: the host's.
        memory_bytes: device memory; None where the driver does not say.
        mps: it is a client of an MPS server, or such a server itself.
    """

    pid: int
    memory_bytes: int | None
    mps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Whether a client connects through a folder that holds `control` alone.

    Attributes:
        control_only: None: it could not be tried.
        reason: why not, or why it could not be tried; for people.
    """

    control_only: bool | None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredShares:
    """What is kept across restarts about one GPU.

    Attributes:
        shares: MPS shares by id; empty where it is (to be) given back.
        mode_before: compute mode that the GPU had when it was taken; None while it is not taken.
        proof: result of the last proof on this GPU in this boot, with this driver.
    """

    gpu: GpuUuid
    shares: tuple[GpuShare, ...] = ()
    mode_before: ComputeMode | None = None
    proof: Proof | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSharing:
    """State of one GPU, as the supervisor tells it.

    Attributes:
        shares: ids of desired shares, sorted.
        message: why it is not ACTIVE or FREE; for people.
        daemon_pid, server_pid: None while there is none.
        restarts: of the daemon since the GPU was taken; whenever it grows, clients were lost.
        clients: processes that the server serves; None where that is not known.
        proof: see `Proof`; None: not tried yet.
        multi_user: the daemon serves pods of several UIDs at once.
        refusal: why MPS cannot run on this GPU now, for people; empty where it can.
        simulated: no server stands behind the daemon.
    """

    gpu: GpuUuid
    phase: MpsPhase = MpsPhase.FREE
    shares: tuple[str, ...] = ()
    message: str = ""
    daemon_pid: int | None = None
    server_pid: int | None = None
    restarts: int = 0
    clients: int | None = None
    proof: Proof | None = None
    multi_user: bool = False
    refusal: str = ""
    simulated: bool = False
