"""Ports of the MPS supervisor: what it needs to hold the shares of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import (
    ComputeMode,
    DaemonProcess,
    DesiredShares,
    GpuProcess,
    MpsLimits,
    MpsServer,
    Proof,
)
from dra_driver.model.share import Expose


class GpuControl(Protocol):
    """What root may see of one GPU and do to it.

    All raise AdapterError where the driver refuses or does not know the GPU.
    """

    def compute_mode(self, gpu: GpuUuid) -> ComputeMode: ...

    def set_compute_mode(self, gpu: GpuUuid, mode: ComputeMode) -> None: ...

    def processes(self, gpu: GpuUuid) -> tuple[GpuProcess, ...]:
        """Compute processes of all containers and of the host, by pid."""
        ...


class MpsDaemons(Protocol):
    """Control daemons as processes of this host, at most one per GPU.

    They outlive the process that started them.
    """

    def start(self, gpu: GpuUuid, *, multi_user: bool) -> DaemonProcess:
        """Start the GPU's daemon, in the foreground of a session of its own, until it answers.

        Raises:
            AdapterError: it ended or did not answer in time; the text has the end of its log.
        """
        ...

    def find(self, gpu: GpuUuid) -> DaemonProcess | None:
        """The GPU's running daemon, whoever of us started it."""
        ...

    def foreign(self, gpu: GpuUuid) -> tuple[int, ...]:
        """Control daemons and servers on this host that are not ours and may use the GPU, by pid.

        One whose environment names other GPUs only does not count.
        """
        ...

    def kill(self, gpu: GpuUuid) -> None:
        """End the GPU's daemon and its servers at once, and remove the sockets they leave."""
        ...

    def wait(self, known: Mapping[GpuUuid, DaemonProcess], timeout_s: float) -> tuple[GpuUuid, ...]:
        """Wait until one of these ends or the time is over; gives the GPUs of those that ended."""
        ...


class MpsControl(Protocol):
    """Settings of a GPU's daemon. What a set writes is read back before it returns.

    Raises:
        MpsGone: no daemon answers.
        MpsHung: it does not answer in time.
        MpsDenied: it refuses this user.
        MpsUnverified: it took something else than was written.
    """

    def limits(self, gpu: GpuUuid) -> MpsLimits:
        """Default ceilings of servers; memory in whole GiB may have been floored by the daemon."""
        ...

    def set_limits(self, gpu: GpuUuid, limits: MpsLimits, server: int | None) -> None:
        """Set the default ceilings, and those of a running server for clients to come.

        Raises:
            MpsServerNotFound: there is no such server; the defaults are set.
        """
        ...

    def quit(self, gpu: GpuUuid, *, force_after_s: float) -> None:
        """End the daemon and its servers; clients are ended by force after `force_after_s`."""
        ...


class MpsServers(Protocol):
    """Servers of a GPU's daemon; errors as of `MpsControl`."""

    def start(self, gpu: GpuUuid, *, uid: int) -> None:
        """Start a server for clients of this UID (of all where the daemon is multi-user)."""
        ...

    def find(self, gpu: GpuUuid) -> MpsServer | None:
        """The running server; of several the newest."""
        ...

    def clients(self, gpu: GpuUuid, server: int) -> tuple[int, ...]:
        """Host pids, sorted."""
        ...

    def terminate(self, gpu: GpuUuid, server: int, client: int) -> None:
        """Raises NotFound where it is no client."""
        ...

    def stop(self, gpu: GpuUuid, server: int, *, force: bool) -> None: ...


class ShareFolders(Protocol):
    """What containers of shares see of a daemon, all below the run folder."""

    def pipe(self, gpu: GpuUuid) -> Path:
        """The daemon's own folder of sockets."""
        ...

    def expose(self, gpu: GpuUuid, share: str, expose: Expose) -> None:
        """Let the share's folder lead to the daemon that runs now; for FOLDER there is none.

        Raises:
            MpsGone: the daemon has no socket.
        """
        ...

    def hide(self, share: str) -> None: ...

    def exposed(self, gpu: GpuUuid) -> frozenset[str]:
        """Shares whose folder leads to the daemon that runs now."""
        ...

    def known(self) -> frozenset[str]:
        """Shares that have a folder, wherever it leads."""
        ...


class ClientProver(Protocol):
    def prove(self, gpu: GpuUuid, folder: Path) -> Proof:
        """Try a CUDA client, in a process that can be killed, with a folder of `control` alone."""
        ...


class MpsStore(Protocol):
    """What the supervisor keeps across its restarts; lost at a reboot like the hardware's state."""

    def load(self) -> Mapping[GpuUuid, DesiredShares]:
        """What is kept, without what is damaged; a damaged entry is kept aside and logged."""
        ...

    def save(self, desired: DesiredShares) -> None: ...

    def forget(self, gpu: GpuUuid) -> None: ...
