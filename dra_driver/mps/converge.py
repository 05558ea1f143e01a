"""Brings one GPU to what is desired, whatever it takes. The caller holds the GPU's lock."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import assert_never

from dra_driver import log
from dra_driver.errors import AdapterError, GpusliceError, MpsGone, MpsHung, MpsServerNotFound
from dra_driver.model.mps import ComputeMode, MpsPhase, ServerStatus
from dra_driver.mps.board import StateBoard
from dra_driver.mps.gpu_state import GpuEntry
from dra_driver.mps.refusals import ServerInUse
from dra_driver.mps.steps import MpsSteps
from dra_driver.mps.world import MpsPorts
from dra_driver.plan.mps import (
    MpsObserved,
    MpsRules,
    MpsWanted,
    mps_rules,
    next_steps,
    retry_pause_s,
)
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
from dra_driver.ports import Recorder

_PASSES = 4
"""Steps change what is planned on only where the world changed meanwhile."""

_log = log.get(__name__)


class Converger:
    """Plans and runs steps until nothing is left to do, and tells how far it is.

    Args:
        ports: the world.
        board: gets the state of each GPU.
        recorder: counts starts and failures.
        ending, pause: see `MpsSteps`.
        single_uid: of all pods that share GPUs, where a daemon serves one user only.
        expose_folder: containers see all sockets.
        simulated: no servers stand behind the daemons.
    """

    def __init__(
        self,
        ports: MpsPorts,
        board: StateBoard,
        *,
        recorder: Recorder,
        ending: Event,
        pause: Callable[[float], object],
        single_uid: int | None,
        expose_folder: bool,
        simulated: bool,
    ) -> None:
        self.steps = MpsSteps(ports, ending=ending, pause=pause)
        self._ports = ports
        self._board = board
        self._recorder = recorder
        self._single_uid = single_uid
        self._expose_folder = expose_folder
        self._simulated = simulated
        self._rules: tuple[str | None, MpsRules] | None = None

    def rules(self) -> MpsRules:
        version, known = self._ports.driver_version(), self._rules
        # Asked several times for each share, and the same as long as the driver is.
        if known is None or known[0] != version:
            rules = mps_rules(
                version, single_uid=self._single_uid, expose_folder=self._expose_folder
            )
            known = self._rules = (version, rules)
        return known[1]

    def tell(self, entry: GpuEntry) -> None:
        """Show a GPU's present state to all who follow."""
        sharing = entry.sharing(multi_user=self.rules().multi_user, simulated=self._simulated)
        self._board.put(sharing)

    def plan(self, entry: GpuEntry) -> tuple[MpsStep, ...]:
        """Look at what is cheap to see, and give what is left to do."""
        self._find_daemon(entry)
        if entry.mode is None:
            entry.mode = self._mode(entry)
        return self._plan(entry)

    def reach(self, entry: GpuEntry) -> None:
        """Do all that is left to do.

        Raises:
            GpuRefused: the GPU cannot be had.
            AdapterError, NotReady: it is not there yet; the state tells why.
        """
        start_s = self._ports.clock.monotonic_s()
        try:
            starts = self._settle(entry)
        except GpusliceError as error:
            self._failed(entry, error)
            raise
        if starts:
            self._recorder.observe("mps_start_seconds", self._ports.clock.monotonic_s() - start_s)

    def run_quick(self, entry: GpuEntry, steps: tuple[MpsStep, ...]) -> None:
        """Run planned steps that are quick; errors as of `reach`."""
        try:
            for step in steps:
                self.steps.run(entry, step)
            self._settled(entry)
        except GpusliceError as error:
            self._failed(entry, error)
            raise

    def give_up_daemon(self, entry: GpuEntry, why: str) -> None:
        """End a daemon that does not answer; its clients are lost."""
        _log.warning("An MPS daemon is ended by force", gpu=entry.gpu, why=why)
        self._ports.daemons.kill(entry.gpu)
        self.lost_daemon(entry)

    def lost_daemon(self, entry: GpuEntry) -> None:
        entry.lost_daemon()
        self._lost_clients(entry, "the MPS daemon ended; it is started anew")

    def lost_server(self, entry: GpuEntry) -> None:
        entry.lost_server()
        self._lost_clients(entry, "the MPS server ended; it is started anew")

    def _lost_clients(self, entry: GpuEntry, why: str) -> None:
        _log.warning("Clients of a GPU are lost", gpu=entry.gpu, why=why)
        entry.restarts += 1
        if entry.wanted:
            entry.phase, entry.message = MpsPhase.FAULT, why
        self.tell(entry)

    def _find_daemon(self, entry: GpuEntry) -> None:
        found = self._ports.daemons.find(entry.gpu)
        if entry.daemon is not None and found != entry.daemon:
            self.lost_daemon(entry)
        if found is not None and entry.daemon is None:
            entry.started_daemon(found)
            try:
                entry.server = self._ports.servers.find(entry.gpu)
            except (MpsHung, MpsGone) as error:
                self.give_up_daemon(entry, str(error))

    def _mode(self, entry: GpuEntry) -> ComputeMode | None:
        if not entry.wanted and entry.daemon is None:
            return None
        try:
            return self._ports.control.compute_mode(entry.gpu)
        except AdapterError:
            if entry.wanted:
                raise
            return None  # it may be lost, and is given back all the same

    def _plan(self, entry: GpuEntry) -> tuple[MpsStep, ...]:
        exposed = frozenset[str]()
        if entry.daemon is not None:
            exposed = self._ports.folders.exposed(entry.gpu)
        wanted = MpsWanted(desired=entry.desired, rules=self.rules(), held=entry.held)
        observed = MpsObserved(
            mode=entry.mode,
            daemon=entry.daemon,
            server=entry.server,
            renew=entry.renew,
            limits=entry.limits,
            exposed=exposed,
            stale=entry.stale,
        )
        return next_steps(wanted, observed)

    def _settle(self, entry: GpuEntry) -> bool:
        """True where a server was started."""
        if entry.wanted and not self._ports.has_read(entry.gpu):
            # Without the driver's version a daemon would be started with the wrong abilities.
            raise AdapterError(
                f"GPU {entry.gpu} cannot be shared yet: this node's GPUs could not be read so far; "
                "see that the GPU driver is loaded"
            )
        started = False
        for _ in range(_PASSES):
            steps = self.plan(entry)
            if not steps:
                self._settled(entry)
                return started
            self._begin(entry, steps)
            try:
                for step in steps:
                    self.steps.run(entry, step)
                    started |= isinstance(step, StartServer)
            except (MpsHung, MpsGone) as error:
                self.give_up_daemon(entry, str(error))
            except MpsServerNotFound:
                self.lost_server(entry)
            except ServerInUse as error:
                _log.info("A server is not renewed", gpu=entry.gpu, why=str(error))
        raise AdapterError(
            f"sharing of GPU {entry.gpu} does not settle: {_names(steps)} had to be done again and "
            f"again; see control.log in {self._ports.folders.pipe(entry.gpu).parent / 'log'}"
        )

    def _begin(self, entry: GpuEntry, steps: tuple[MpsStep, ...]) -> None:
        if all(is_quick(step) for step in steps):
            return
        _log.info("Changing how a GPU is shared", gpu=entry.gpu, steps=_names(steps))
        if not entry.wanted:
            entry.phase, entry.message = MpsPhase.DRAINING, "it is given back"
        elif entry.phase not in {MpsPhase.ACTIVE, MpsPhase.FAULT} or _interrupts(entry, steps):
            # One that failed before stays at fault, with its reason, until it is well.
            at_fault = entry.failures > 0 or entry.phase is MpsPhase.FAULT
            entry.phase = MpsPhase.FAULT if at_fault else MpsPhase.STARTING
            entry.message = entry.message or "the MPS daemon and its server are starting"
        self.tell(entry)

    def _settled(self, entry: GpuEntry) -> None:
        server = entry.server
        if entry.wanted and (server is None or server.status is ServerStatus.FAULT):
            raise AdapterError(
                f"the MPS server of GPU {entry.gpu} is at fault and is replaced once its clients "
                "have ended"
            )
        entry.phase = MpsPhase.ACTIVE if entry.wanted else MpsPhase.FREE
        entry.message = ""
        entry.failures, entry.recycling = 0, False
        if entry.wanted:
            entry.refusal = ""
        else:
            entry.mode, entry.restarts = None, 0
        self.tell(entry)

    def _failed(self, entry: GpuEntry, error: GpusliceError) -> None:
        entry.recycling = False
        entry.failures += 1
        entry.lost = self._ports.is_lost(entry.gpu)
        entry.retry_at_s = self._ports.clock.monotonic_s() + retry_pause_s(entry.failures)
        entry.phase, entry.message = MpsPhase.FAULT, str(error)
        _log.warning("Sharing of a GPU is not as desired", gpu=entry.gpu, error=str(error))
        self._recorder.count("mps_failures_total")
        self.tell(entry)


def is_quick(step: MpsStep) -> bool:
    """Whether a step is a change of folders or of our own files alone."""
    match step:
        case ExposeShare() | HideShare() | Forget():
            return True
        case (
            TakeGpu()
            | StartDaemon()
            | SetLimits()
            | SetExclusive()
            | StartServer()
            | AwaitServer()
            | StopServer()
            | Prove()
            | QuitDaemon()
            | RestoreMode()
        ):
            return False
        case _:
            assert_never(step)


def _interrupts(entry: GpuEntry, steps: tuple[MpsStep, ...]) -> bool:
    """Whether clients notice: they cannot come while the server is not there."""
    if entry.recycling:
        return False
    return any(isinstance(step, StartDaemon | StartServer | AwaitServer) for step in steps)


def _names(steps: tuple[MpsStep, ...]) -> str:
    return ", ".join(type(step).__name__ for step in steps)
