"""Why a GPU cannot be had for sharing."""

from __future__ import annotations

from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import Proof
from dra_driver.model.share import Expose, GpuShare
from dra_driver.mps.world import MpsPorts


class GpuRefused(AdapterError):  # noqa: N818 - reads as the verdict that it is
    """The GPU cannot be shared as things are; nothing was changed."""


class ServerInUse(AdapterError):  # noqa: N818
    """A server that was to be renewed because it was idle is so no longer; it goes on."""


def refuse_strangers(ports: MpsPorts, gpu: GpuUuid, *, taken: bool) -> None:
    """Raise GpuRefused where anybody else uses the GPU; clients of MPS are ours if it is taken."""
    found = daemons_on(ports, gpu) or processes_on(ports, gpu, taken=taken)
    if found:
        raise _in_use(gpu, found)


def refuse_processes(ports: MpsPorts, gpu: GpuUuid) -> None:
    """Raise GpuRefused where processes outside MPS use a GPU that is taken."""
    found = processes_on(ports, gpu, taken=True)
    if found:
        raise _in_use(gpu, found)


def refuse_unproved(gpu: GpuUuid, proof: Proof, shares: tuple[GpuShare, ...]) -> None:
    """Raise GpuRefused where a share would get a socket that its clients cannot use."""
    hopeless = [share.id for share in shares if share.expose is Expose.CONTROL]
    if hopeless and proof.control_only is False:
        raise GpuRefused(
            f"GPU {gpu}: share {hopeless[0]} is to get the socket `control` alone, but MPS clients "
            f"do not connect through it here ({proof.reason or 'as was tried'}); it has to get "
            "the whole folder: prepare it again"
        )


def daemons_on(ports: MpsPorts, gpu: GpuUuid) -> str:
    """Daemons and servers that are not ours, as words; empty where there are none."""
    pids = ports.daemons.foreign(gpu)
    if not pids:
        return ""
    return f"an MPS daemon or server that is not ours may use it (pid {_pids(pids)})"


def processes_on(ports: MpsPorts, gpu: GpuUuid, *, taken: bool) -> str:
    """Processes outside our daemon, as words; empty where there are none."""
    found = ports.control.processes(gpu)
    pids = tuple(process.pid for process in found if not (taken and process.mps))
    return f"processes compute on it (pid {_pids(pids)})" if pids else ""


def _in_use(gpu: GpuUuid, found: str) -> GpuRefused:
    return GpuRefused(
        f"GPU {gpu} cannot be shared: {found}; end them, or wait until they have ended"
    )


def _pids(pids: tuple[int, ...]) -> str:
    return ", ".join(str(pid) for pid in sorted(pids))
