"""Servers of MPS control daemons."""

from __future__ import annotations

from dra_driver.adapters.mps_control import ControlProgram
from dra_driver.adapters.mps_processes import Processes
from dra_driver.adapters.mps_replies import MpsUnknownCommand, pids_of, server_status_of
from dra_driver.errors import AdapterError, MpsServerNotFound, NotFound
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import MpsServer, ServerStatus

_START_S = 30.0
_STOP_S = 30.0
_DONE = "0"


class ProgramServers:
    """`MpsServers` of real daemons.

    A daemon that was told to start a server answers before that is up, or has failed: `find` tells.

    Args:
        program: speaks to the daemons.
        processes: of this host; tells which of several servers is the newest.
    """

    def __init__(self, program: ControlProgram, processes: Processes) -> None:
        self._program = program
        self._processes = processes

    def start(self, gpu: GpuUuid, *, uid: int) -> None:
        lines = self._program.ask(gpu, (f"start_server -uid {int(uid)}",), _START_S)
        if any(line.startswith("Failed") for line in lines):
            raise AdapterError(f"the MPS daemon of GPU {gpu} starts no server: {' '.join(lines)}")

    def find(self, gpu: GpuUuid) -> MpsServer | None:
        pids = pids_of(self._program.ask(gpu, ("get_server_list",)))
        if not pids:
            return None
        pid = max(pids, key=lambda each: self._processes.started(each) or 0)
        try:
            status = server_status_of(self._program.ask(gpu, (f"get_server_status {pid}",)))
        except MpsUnknownCommand:
            # Release 535 has no such command, and lists what is alive.
            status = ServerStatus.ACTIVE
        except MpsServerNotFound:
            return None
        return MpsServer(pid=pid, status=status)

    def clients(self, gpu: GpuUuid, server: int) -> tuple[int, ...]:
        return tuple(sorted(pids_of(self._program.ask(gpu, (f"get_client_list {int(server)}",)))))

    def terminate(self, gpu: GpuUuid, server: int, client: int) -> None:
        lines = self._program.ask(gpu, (f"terminate_client {int(server)} {int(client)}",))
        if lines[-1:] == (_DONE,):
            return
        text = " ".join(lines) or "nothing"
        if client not in self.clients(gpu, server):
            raise NotFound(
                f"process {client} is no client of MPS server {server} of GPU {gpu}: {text}"
            )
        raise AdapterError(
            f"MPS server {server} of GPU {gpu} does not end its client {client}: {text}"
        )

    def stop(self, gpu: GpuUuid, server: int, *, force: bool) -> None:
        command = f"shutdown_server {int(server)}{' -f' if force else ''}"
        lines = self._program.ask(gpu, (command,), _STOP_S)
        if any("will not shutdown" in line for line in lines):
            raise AdapterError(f"an MPS server of GPU {gpu} still has clients: {' '.join(lines)}")
