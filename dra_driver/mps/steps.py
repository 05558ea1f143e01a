"""From a step to the port that makes it real. The caller holds the GPU's lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import assert_never

from dra_driver import log
from dra_driver.errors import (
    AdapterError,
    MpsGone,
    MpsHung,
    MpsServerNotFound,
    NotReady,
    Reason,
)
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import (
    ComputeMode,
    DesiredShares,
    MpsLimits,
    MpsServer,
    Proof,
    ServerStatus,
)
from dra_driver.model.share import Expose
from dra_driver.mps.gpu_state import GpuEntry
from dra_driver.mps.refusals import (
    GpuRefused,
    ServerInUse,
    processes_on,
    refuse_processes,
    refuse_strangers,
    refuse_unproved,
)
from dra_driver.mps.world import MpsPorts
from dra_driver.plan.mps import proof_share
from dra_driver.plan.mps_paths import share_folder
from dra_driver.plan.mps_steps import (
    AwaitServer,
    ExposeShare,
    Forget,
    HideShare,
    MpsStep,
    Prove,
    QuitDaemon,
    RestoreMode,
    SetExclusive,
    SetLimits,
    StartDaemon,
    StartServer,
    StopServer,
    TakeGpu,
)

SERVER_START_S = 30.0
"""A server that takes no clients by then is replaced."""

_SERVER_APPEARS_S = 5.0
"""One that is not there by then has ended at once."""

_STOP_S = 10.0
_QUIT_FORCE_AFTER_S = 10.0
_POLL_FIRST_S = 0.02
_POLL_LAST_S = 0.5

_log = log.get(__name__)


class MpsSteps:
    """Runs steps on the ports and keeps what is known of the GPU in its entry.

    Args:
        ports: the world.
        ending: set when the supervisor ends; a wait for a server is given up then.
        pause: waits so many seconds at most.
    """

    def __init__(self, ports: MpsPorts, *, ending: Event, pause: Callable[[float], object]) -> None:
        self._ports = ports
        self._ending = ending
        self._pause = pause

    def run(self, entry: GpuEntry, step: MpsStep) -> None:  # noqa: C901, PLR0912 - a flat table
        """Run one step; MpsHung and MpsGone say that the daemon is to be given up."""
        ports, gpu = self._ports, entry.gpu
        match step:
            case TakeGpu():
                self._take(entry)
            case StartDaemon(multi_user=multi_user):
                if entry.restarts:
                    # The run folder may have been emptied, and the last daemon lost for that.
                    ports.store.save(entry.desired)
                entry.started_daemon(ports.daemons.start(gpu, multi_user=multi_user))
            case SetLimits(limits=limits):
                self._set_limits(entry, limits)
            case SetExclusive():
                # The driver refuses exclusive mode to nobody, but the server would not start.
                refuse_processes(ports, gpu)
                self._set_mode(entry, ComputeMode.EXCLUSIVE_PROCESS)
            case StartServer(uid=uid):
                ports.servers.start(gpu, uid=uid)
            case AwaitServer():
                self._await_server(entry)
            case StopServer(force=force):
                self._stop_server(entry, force=force)
            case Prove():
                self._prove(entry)
            case ExposeShare(share=share):
                ports.folders.expose(gpu, share, Expose.CONTROL)
            case HideShare(share=share):
                ports.folders.hide(share)
                entry.stale -= {share}
            case QuitDaemon():
                self._quit(entry)
            case RestoreMode(mode=mode):
                self._restore_mode(entry, mode)
            case Forget():
                self.keep(entry, replace(entry.desired, mode_before=None))
            case _:
                assert_never(step)

    def keep(self, entry: GpuEntry, desired: DesiredShares) -> None:
        """Make this durable as what is desired of the GPU."""
        if desired == DesiredShares(gpu=entry.gpu):
            self._ports.store.forget(entry.gpu)
        elif desired != entry.desired:
            self._ports.store.save(desired)
        entry.desired = desired

    def _take(self, entry: GpuEntry) -> None:
        mode = self._ports.control.compute_mode(entry.gpu)
        if entry.daemon is not None and mode is ComputeMode.EXCLUSIVE_PROCESS:
            # A daemon of ours whose record is lost: the mode is of our making.
            mode = ComputeMode.DEFAULT
        if mode is ComputeMode.PROHIBITED:
            raise GpuRefused(
                f"GPU {entry.gpu} cannot be shared: its compute mode is Prohibited; set it to "
                "Default with nvidia-smi -c, or leave this GPU alone"
            )
        refuse_strangers(self._ports, entry.gpu, taken=entry.daemon is not None)
        self.keep(entry, replace(entry.desired, mode_before=mode))
        entry.mode = mode
        entry.restarts = 0

    def _set_limits(self, entry: GpuEntry, limits: MpsLimits) -> None:
        server = entry.server.pid if entry.server is not None else None
        entry.limits = None
        try:
            self._ports.settings.set_limits(entry.gpu, limits, server)
        except MpsServerNotFound:
            entry.lost_server()
            raise
        entry.limits = limits

    def _set_mode(self, entry: GpuEntry, mode: ComputeMode) -> None:
        entry.mode = None
        self._ports.control.set_compute_mode(entry.gpu, mode)
        entry.mode = mode

    def _restore_mode(self, entry: GpuEntry, mode: ComputeMode) -> None:
        # What outlived its daemon would own the GPU while it is open to all.
        self._ports.daemons.kill(entry.gpu)
        try:
            self._set_mode(entry, mode)
        except AdapterError as error:
            if entry.gpu in self._ports.gpus() or not self._ports.has_read(entry.gpu):
                raise
            # The GPU is lost, and its mode with it: that must not hold up who gives it back.
            _log.warning("Compute mode of a lost GPU not restored", gpu=entry.gpu, error=str(error))
            entry.mode = mode

    def _await_server(self, entry: GpuEntry) -> None:
        ports, gpu = self._ports, entry.gpu
        start_s = ports.clock.monotonic_s()
        poll_s = _POLL_FIRST_S
        while True:
            server = ports.servers.find(gpu)
            if server is not None:
                entry.server = server
                if server.status is ServerStatus.ACTIVE:
                    return
            self._check_going_on(gpu)
            limit_s = SERVER_START_S if server is not None else _SERVER_APPEARS_S
            at_fault = server is not None and server.status is ServerStatus.FAULT
            if at_fault or ports.clock.monotonic_s() - start_s >= limit_s:
                break
            self._pause(poll_s)
            poll_s = min(2 * poll_s, _POLL_LAST_S)
        raise self._not_serving(entry, server)

    def _not_serving(self, entry: GpuEntry, server: MpsServer | None) -> AdapterError:
        if server is None:
            entry.lost_server()
            state = "it ended"
        else:
            entry.renew = True
            state = f"its status is {server.status.value}"
        others = processes_on(self._ports, entry.gpu, taken=True)
        log_folder = self._ports.folders.pipe(entry.gpu).parent / "log"
        return AdapterError(
            f"the MPS server of GPU {entry.gpu} does not take clients: {state}"
            f"{f', and {others}' if others else ''}; see server.log in {log_folder}; it is tried "
            "again"
        )

    def _stop_server(self, entry: GpuEntry, *, force: bool) -> None:
        ports, gpu, server = self._ports, entry.gpu, entry.server
        if server is None:
            return
        try:
            if not (force or entry.stopping or self._is_idle(entry, server)):
                raise ServerInUse(f"MPS server {server.pid} of GPU {gpu} has a new client")
            ports.servers.stop(gpu, server.pid, force=force)
            entry.stopping = True
        except MpsServerNotFound:
            entry.lost_server()
            return
        end_s = ports.clock.monotonic_s() + _STOP_S
        while (found := ports.servers.find(gpu)) is not None and found.pid == server.pid:
            self._check_going_on(gpu)
            if ports.clock.monotonic_s() >= end_s:
                raise _still_there(gpu, server, force=force)
            self._pause(_POLL_FIRST_S)
        entry.lost_server()

    def _is_idle(self, entry: GpuEntry, server: MpsServer) -> bool:
        """Whether a server has no clients still; one that has is not to be renewed after all."""
        if not self._ports.servers.clients(entry.gpu, server.pid):
            return True
        entry.renew = entry.recycling = False
        return False

    def _prove(self, entry: GpuEntry) -> None:
        ports, gpu = self._ports, entry.gpu
        share = proof_share(gpu)
        ports.folders.expose(gpu, share, Expose.CONTROL)
        try:
            proof = ports.prover.prove(gpu, Path(share_folder(str(ports.run_dir), share)))
        except AdapterError as error:
            proof = Proof(control_only=None, reason=str(error))
        finally:
            ports.folders.hide(share)
        _log.info(
            "Proved what clients need", gpu=gpu, control_only=proof.control_only, why=proof.reason
        )
        self.keep(entry, replace(entry.desired, proof=proof))
        if proof.control_only is False:
            refuse_unproved(gpu, proof, entry.desired.shares)

    def _quit(self, entry: GpuEntry) -> None:
        ports, gpu = self._ports, entry.gpu
        try:
            ports.settings.quit(gpu, force_after_s=_QUIT_FORCE_AFTER_S)
        except (MpsHung, MpsGone) as error:
            _log.warning("An MPS daemon does not quit", gpu=gpu, error=str(error))
        if ports.daemons.find(gpu) is not None:
            ports.daemons.kill(gpu)
        entry.lost_daemon()

    def _check_going_on(self, gpu: GpuUuid) -> None:
        if self._ending.is_set():
            raise NotReady(
                Reason.SHUTTING_DOWN,
                f"sharing of GPU {gpu}: the supervisor is stopping; it goes on after its restart",
            )


def _still_there(gpu: GpuUuid, server: MpsServer, *, force: bool) -> AdapterError:
    if force:
        return MpsHung(f"MPS server {server.pid} of GPU {gpu} does not stop")
    # It takes no new clients any more, but those that it has do nothing wrong.
    return AdapterError(
        f"MPS server {server.pid} of GPU {gpu} is to be renewed, but got a client at the last "
        "moment: new clients wait until that one has ended"
    )
