"""Servers of MPS that are files, for simulated daemons and for real ones without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_mps_files import (
    MpsFiles,
    check_command,
    daemon_of,
    gone,
    keep_limits,
    number_in,
    simulated_pid,
)
from dra_driver.errors import AdapterError, MpsServerNotFound, NotFound
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import DaemonProcess, MpsLimits, MpsServer, ServerStatus
from dra_driver.ports.mps import MpsDaemons


class SimulatedMpsServers:
    """`MpsServers` in files, for simulated daemons and for real ones on a machine without a GPU.

    Clients are those processes of the simulation file that are marked so; one that was terminated
    counts no more as long as this server lives.

    Args:
        file: of the simulated node.
        run_dir: the run folder.
        daemons: whose servers these are; a server ends with its daemon.
    """

    def __init__(self, file: SimulationFile, *, run_dir: Path, daemons: MpsDaemons) -> None:
        self._file = file
        self._daemons = daemons
        self._files = MpsFiles(run_dir)

    def start(self, gpu: GpuUuid, *, uid: int) -> None:
        daemon = self._daemon(gpu)
        if self._body(gpu, daemon) is not None:
            return
        fault = self._file.fault("mps.server", gpu)
        if fault is not None and fault.error:
            # As a real daemon does: whoever looks finds no server.
            return
        now_ns = monotonic_ns()
        body: dict[str, Any] = {
            "pid": simulated_pid(now_ns),
            "uid": uid,
            "daemon": {"pid": daemon.pid, "started": daemon.started},
            "readyAt": monotonic() + (fault.delay_s if fault is not None else 0.0),
            "terminated": [],
        }
        self._files.write(gpu, "server", body)

    def find(self, gpu: GpuUuid) -> MpsServer | None:
        body = self._body(gpu, self._daemon(gpu))
        if body is None:
            return None
        status = ServerStatus.ACTIVE
        if self._file.fault("mps.status", gpu) is not None:
            status = ServerStatus.FAULT
        elif body.get("readyAt", 0.0) > monotonic():
            status = ServerStatus.INITIALIZING
        return MpsServer(pid=number_in(body, "pid"), status=status)

    def clients(self, gpu: GpuUuid, server: int) -> tuple[int, ...]:
        return self._clients(gpu, self._server(gpu, server))

    def terminate(self, gpu: GpuUuid, server: int, client: int) -> None:
        body = self._server(gpu, server)
        if client not in self._clients(gpu, body):
            raise NotFound(f"process {client} is no client of MPS server {server} of GPU {gpu}")
        body["terminated"] = sorted({*body.get("terminated", ()), client})
        self._files.write(gpu, "server", body)

    def stop(self, gpu: GpuUuid, server: int, *, force: bool) -> None:
        body = self._server(gpu, server)
        clients = self._clients(gpu, body)
        if clients and not force:
            raise AdapterError(f"an MPS server of GPU {gpu} still has {len(clients)} clients")
        self._files.remove(gpu, "server")

    def set_limits(self, gpu: GpuUuid, limits: MpsLimits, server: int) -> None:
        """Keep a server's own ceilings; raises MpsServerNotFound."""
        self._files.write(gpu, "server", keep_limits(self._server(gpu, server), limits))

    def _server(self, gpu: GpuUuid, server: int) -> dict[str, Any]:
        body = self._body(gpu, self._daemon(gpu))
        if body is None or number_in(body, "pid") != server:
            raise MpsServerNotFound(
                f"the MPS control daemon of GPU {gpu} says: Server {server} not found"
            )
        return body

    def _clients(self, gpu: GpuUuid, body: Mapping[str, Any]) -> tuple[int, ...]:
        terminated = body.get("terminated", ())
        processes = self._file.last_good().processes
        pids = {each.pid for each in processes if each.gpu == gpu and each.mps}
        return tuple(sorted(pids.difference(terminated)))

    def _daemon(self, gpu: GpuUuid) -> DaemonProcess:
        check_command(self._file, gpu)
        daemon = self._daemons.find(gpu)
        if daemon is None:
            raise gone(gpu)
        return daemon

    def _body(self, gpu: GpuUuid, daemon: DaemonProcess) -> dict[str, Any] | None:
        body = self._files.read(gpu, "server")
        if body is not None and daemon_of(body.get("daemon", {})) == daemon:
            return body
        return None
