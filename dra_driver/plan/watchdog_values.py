"""What the watchdog sees and finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuProcess
from dra_driver.model.owner import ProcessOwner
from dra_driver.model.share import GpuShare, OnExceed


class StrangerKind(StrEnum):
    """What is wrong with a process on a shared GPU.

    INTRUDER: it runs in a container whose claims hold nothing of this GPU. BYPASS: it runs in a
    container with an MPS share of this GPU but is no MPS client, so no limit holds it. HOST: it
    runs outside containers.
    """

    INTRUDER = "Intruder"
    BYPASS = "Bypass"
    HOST = "Host"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedShare:
    """A share of a claim.

    Attributes:
        pods: UIDs of the pods that the claim was prepared for, sorted; later ones are missing.
    """

    claim: ClaimRef
    share: GpuShare
    pods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What records say about shared GPUs.

    Attributes:
        shares: of each GPU that has any, by share id.
        claims: UIDs of all claims that hold something of a GPU, monitors among them.
        known: ids of all shares and UIDs of all claims on this node.
    """

    shares: Mapping[GpuUuid, tuple[WatchedShare, ...]]
    claims: Mapping[GpuUuid, frozenset[str]]
    known: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A process on a GPU and whose it is; owner None: it has ended, or that cannot be read."""

    process: GpuProcess
    owner: ProcessOwner | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A client process that is to lose its GPU; the two numbers name it for ever."""

    pid: int
    started: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one claim uses of one GPU.

    Attributes:
        limit_bytes: the sum of its shares of this GPU.
        used_bytes: the sum over its processes, as far as they are told.
        complete: every process is told, so that `used_bytes` is all.
        over: it is above the limit by more than the tolerance.
        under: it is known to be within the limit. Between the two nothing is said.
        enforced: MPS holds each of its processes.
        on_exceed: the strictest of its shares.
        pods: UIDs of the pods that these processes run in, sorted.
        victims: whom to end so that it comes within its limit, largest first; empty unless its
            shares ask for that.
    """

    claim: ClaimRef
    gpu: GpuUuid
    limit_bytes: int
    used_bytes: int
    clients: int
    complete: bool
    over: bool
    under: bool
    enforced: bool
    on_exceed: OnExceed
    pods: tuple[str, ...]
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """A process that should not be on the GPU; `claim` is whose container it runs in, of BYPASS."""

    kind: StrangerKind
    gpu: GpuUuid
    pid: int
    started: int
    pod_uid: str | None
    container_id: str | None
    claim: ClaimRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Of one GPU: usages of all claims that share it, by UID, and strangers by pid."""

    usages: tuple[Usage, ...]
    strangers: tuple[Stranger, ...]
