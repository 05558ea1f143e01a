"""The ports of the supervisor, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dra_driver.model.device import GpuUuid
from dra_driver.ports import (
    ClientProver,
    Clock,
    GpuControl,
    MpsControl,
    MpsDaemons,
    MpsServers,
    MpsStore,
    ShareFolders,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsPorts:
    """The world of the supervisor.

    Attributes:
        run_dir: the run folder that `folders` lies in.
        gpus: GPUs of this node.
        driver_version: as the driver spells it; None: not known.
    """

    control: GpuControl
    daemons: MpsDaemons
    settings: MpsControl
    servers: MpsServers
    folders: ShareFolders
    prover: ClientProver
    store: MpsStore
    clock: Clock
    run_dir: Path
    gpus: Callable[[], tuple[GpuUuid, ...]]
    driver_version: Callable[[], str | None]
