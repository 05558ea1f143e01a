"""Steps by which the MPS supervisor brings one GPU to what is desired. All may be run again."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.model.mps import ComputeMode, MpsLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeGpu:
    """Make sure that nobody else uses the GPU, and remember its compute mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDaemon:
    multi_user: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLimits:
    """Ceilings of servers to come, and of the running one."""

    limits: MpsLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class SetExclusive:
    """Let one process alone open the GPU: the server, once it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartServer:
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitServer:
    """Wait until the server takes clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopServer:
    """The daemon stays.

    Attributes:
        force: end its clients first.
    """

    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prove:
    """Find out whether a client connects through the socket `control` alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposeShare:
    """Let the share's folder lead to the running daemon.

    Attributes:
        share: its id.
    """

    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HideShare:
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuitDaemon:
    """End the daemon and its server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMode:
    mode: ComputeMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remember no longer that the GPU was taken."""


MpsStep = (
    TakeGpu
    | StartDaemon
    | SetLimits
    | SetExclusive
    | StartServer
    | AwaitServer
    | StopServer
    | Prove
    | ExposeShare
    | HideShare
    | QuitDaemon
    | RestoreMode
    | Forget
)
