"""What the supervisor knows of one GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import (
    ComputeMode,
    DaemonProcess,
    DesiredShares,
    GpuSharing,
    MpsLimits,
    MpsPhase,
    MpsServer,
)


@dataclass(slots=True, kw_only=True)
class GpuEntry:
    """One GPU; whoever changes it holds its lock.

    Nothing of `mode`, `server` and `limits` is read from the world where it is known: reads cost a
    process each, or hang with the GPU. The keeper refreshes them.

    Attributes:
        desired: as it is kept in the store.
        held: wanted without shares, to be proved.
        mode, daemon, server, limits: as last seen or written; None: not known, or none.
        stale: shares that may have a folder and are not desired.
        renew: the server is to be replaced.
        recycling: it is replaced although it is well, hence its shares remain active.
        stopping: the server was told to end, and takes no new clients.
        served: the server has had clients.
        fault_since_s: when the server was first seen at fault.
        orphan_since_s: when its daemon was first seen without any record of it.
        lost: the last attempt failed while the GPU could not be reached.
        failures: attempts in a row that failed.
        retry_at_s: no attempt by the keeper before.
    """

    gpu: GpuUuid
    desired: DesiredShares
    lock: Lock = field(default_factory=Lock)
    held: bool = False
    mode: ComputeMode | None = None
    daemon: DaemonProcess | None = None
    server: MpsServer | None = None
    limits: MpsLimits | None = None
    stale: frozenset[str] = frozenset()
    renew: bool = False
    recycling: bool = False
    stopping: bool = False
    served: bool = False
    clients: int | None = None
    fault_since_s: float | None = None
    phase: MpsPhase = MpsPhase.FREE
    message: str = ""
    refusal: str = ""
    restarts: int = 0
    lost: bool = False
    failures: int = 0
    retry_at_s: float = 0.0
    looked_at_s: float | None = None
    orphan_since_s: float | None = None

    @property
    def wanted(self) -> bool:
        return bool(self.desired.shares) or self.held

    @property
    def recorded(self) -> bool:
        """Whether a daemon is accounted for; one of ours that is not has lost its record."""
        return self.wanted or self.desired.mode_before is not None

    def started_daemon(self, daemon: DaemonProcess) -> None:
        self.lost_daemon()
        self.daemon = daemon

    def lost_daemon(self) -> None:
        """All that went with it is not known any more."""
        self.daemon = None
        self.limits = None
        self.lost_server()

    def lost_server(self) -> None:
        self.server = None
        self.renew = self.stopping = False
        self.served = False
        self.clients = None
        self.fault_since_s = None

    def sharing(self, *, multi_user: bool, simulated: bool) -> GpuSharing:
        """Give the state for others."""
        return GpuSharing(
            gpu=self.gpu,
            phase=self.phase,
            shares=tuple(sorted(share.id for share in self.desired.shares)),
            message=self.message,
            daemon_pid=self.daemon.pid if self.daemon is not None else None,
            server_pid=self.server.pid if self.server is not None else None,
            restarts=self.restarts,
            clients=self.clients,
            proof=self.desired.proof,
            multi_user=multi_user,
            refusal=self.refusal,
            simulated=simulated,
        )
