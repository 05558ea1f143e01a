"""MPS of simulated GPUs: daemons and servers that are files for all to see.

Below <run-dir>/simulated/mps stand <uuid>.daemon.json and <uuid>.server.json. They outlive the
process, as daemons do; taking one away is the death of what it stands for. Their process ids are
beyond what Linux gives, so that none is ever taken for a real process.

Faults of the simulation file: mps.start hits the start of a daemon; mps.command whatever is asked
of one (TIMEOUT: it hangs, NO_PERMISSION: it refuses, and a delay beyond the time-out is a hang
too); mps.server the start of a server (it ends at once as without a GPU, or initializes for the
delay); mps.status makes a server that runs faulty.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any

from dra_driver.adapters.mps_folders import public_folder, run_dir_errors
from dra_driver.adapters.simulated import wait_out
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_mps_files import (
    MpsFiles,
    check_command,
    check_known,
    daemon_of,
    gone,
    keep_limits,
    shown_limits,
    simulated_pid,
)
from dra_driver.adapters.simulated_mps_servers import SimulatedMpsServers
from dra_driver.errors import AdapterError, MpsGone
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import DaemonProcess, MpsLimits, Proof
from dra_driver.plan.mps_paths import pipe_folder
from dra_driver.ports.mps import MpsControl

_POLL_S = 0.05
_TICKS_NS = 10_000_000
_SOCKETS = ("control", "control_privileged")


class SimulatedMpsDaemons:
    """`MpsDaemons` without a control program; the sockets that it makes lead nowhere.

    Args:
        file: of the simulated node.
        run_dir: the run folder.
    """

    def __init__(self, file: SimulationFile, *, run_dir: Path) -> None:
        self._file = file
        self._run_dir = run_dir
        self._files = MpsFiles(run_dir)

    def start(self, gpu: GpuUuid, *, multi_user: bool) -> DaemonProcess:
        check_known(self._file, gpu)
        error = wait_out(self._file, self._file.fault("mps.start", gpu))
        if error:
            raise AdapterError(
                f"the simulated MPS control daemon of GPU {gpu} ended: {error}; take the fault out"
                " of the --simulate file"
            )
        running = self.find(gpu)
        if running is not None:
            raise AdapterError(
                f"an MPS control daemon of GPU {gpu} runs already: process {running.pid}"
            )
        self._make_sockets(gpu)
        now_ns = monotonic_ns()
        body = {
            "pid": simulated_pid(now_ns),
            "started": now_ns // _TICKS_NS,
            "multiUser": multi_user,
        }
        self._files.write(gpu, "daemon", keep_limits(body, MpsLimits()))
        return daemon_of(body)

    def find(self, gpu: GpuUuid) -> DaemonProcess | None:
        body = self._files.read(gpu, "daemon")
        return daemon_of(body) if body is not None else None

    def foreign(self, gpu: GpuUuid) -> tuple[int, ...]:
        check_known(self._file, gpu)
        return ()

    def kill(self, gpu: GpuUuid) -> None:
        self._files.remove(gpu, "daemon")
        self._files.remove(gpu, "server")
        for name in _SOCKETS:
            with run_dir_errors(f"remove the sockets of GPU {gpu}"):
                self._socket(gpu, name).unlink(missing_ok=True)

    def wait(self, known: Mapping[GpuUuid, DaemonProcess], timeout_s: float) -> tuple[GpuUuid, ...]:
        end_s = monotonic() + timeout_s
        while True:
            ended = tuple(sorted(gpu for gpu, each in known.items() if self.find(gpu) != each))
            left_s = end_s - monotonic()
            if ended or left_s <= 0 or self._file.closed:
                return ended
            self._file.pause(min(_POLL_S, left_s))

    def _make_sockets(self, gpu: GpuUuid) -> None:
        public_folder(self._socket(gpu, "control").parent, below=self._run_dir)
        for name in _SOCKETS:
            path = self._socket(gpu, name)
            mode = 0o666 if name == "control" else 0o755
            with run_dir_errors(f"make the socket {path}"):
                path.unlink(missing_ok=True)
                os.mknod(path, stat.S_IFSOCK | mode)
                path.chmod(mode)

    def _socket(self, gpu: GpuUuid, name: str) -> Path:
        return Path(pipe_folder(str(self._run_dir), gpu)) / name


class SimulatedMpsControl:
    """`MpsControl` of simulated daemons; shows memory in whole GiB as real ones do.

    Args:
        file: of the simulated node.
        run_dir: the run folder.
        servers: of the same daemons.
    """

    def __init__(
        self, file: SimulationFile, *, run_dir: Path, servers: SimulatedMpsServers
    ) -> None:
        self._file = file
        self._files = MpsFiles(run_dir)
        self._servers = servers

    def limits(self, gpu: GpuUuid) -> MpsLimits:
        return shown_limits(self._daemon(gpu))

    def set_limits(self, gpu: GpuUuid, limits: MpsLimits, server: int | None) -> None:
        self._files.write(gpu, "daemon", keep_limits(self._daemon(gpu), limits))
        if server is not None:
            self._servers.set_limits(gpu, limits, server)

    def quit(self, gpu: GpuUuid, *, force_after_s: float) -> None:  # noqa: ARG002 - nothing to wait for
        # A GPU that is lost takes its daemon along, which quits all the same.
        if any(known.uuid == gpu for known in self._file.last_good().gpus):
            with suppress(MpsGone):
                self._daemon(gpu)
        self._files.remove(gpu, "server")
        self._files.remove(gpu, "daemon")

    def _daemon(self, gpu: GpuUuid) -> dict[str, Any]:
        check_command(self._file, gpu)
        body = self._files.read(gpu, "daemon")
        if body is None:
            raise gone(gpu)
        return body


class ServerlessControl:
    """`MpsControl` of a real daemon whose servers are simulated.

    Args:
        control: of the daemons.
        servers: of the same daemons.
    """

    def __init__(self, control: MpsControl, servers: SimulatedMpsServers) -> None:
        self._control = control
        self._servers = servers

    def limits(self, gpu: GpuUuid) -> MpsLimits:
        return self._control.limits(gpu)

    def set_limits(self, gpu: GpuUuid, limits: MpsLimits, server: int | None) -> None:
        self._control.set_limits(gpu, limits, None)
        if server is not None:
            self._servers.set_limits(gpu, limits, server)

    def quit(self, gpu: GpuUuid, *, force_after_s: float) -> None:
        self._control.quit(gpu, force_after_s=force_after_s)


class SimulatedProver:
    """`ClientProver` that says what the simulation file states of the GPU."""

    def __init__(self, file: SimulationFile) -> None:
        self._file = file

    def prove(self, gpu: GpuUuid, folder: Path) -> Proof:  # noqa: ARG002 - it is not looked at
        stated = next(
            (each.mps_control_only for each in self._file.last_good().gpus if each.uuid == gpu),
            None,
        )
        reason = "" if stated else "the --simulate file says so (mps.controlOnly)"
        return Proof(control_only=stated, reason=reason)
