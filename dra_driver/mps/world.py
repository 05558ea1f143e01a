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
        gpus: GPUs of this node; asked often, so it has to be at hand.
        driver_version: as the driver spells it, at hand too; None: not known.
        lost: those of `gpus` that cannot be reached any more.
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
    lost: Callable[[], frozenset[GpuUuid]] = frozenset

    def is_lost(self, gpu: GpuUuid) -> bool:
        """Whether this GPU was there and cannot be reached any more."""
        known = gpu in self.gpus()
        return gpu in self.lost() or (not known and self.has_read(gpu))

    def has_read(self, gpu: GpuUuid) -> bool:
        """Whether the node's GPUs were read, so that a GPU that is not among them is lost."""
        return gpu in self.gpus() or self.driver_version() is not None
