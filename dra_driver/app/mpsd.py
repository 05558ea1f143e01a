"""The process `gpuslice mpsd`: what is built from what, in which order it starts and stops.

It may end and start again at any time: MPS daemons that have shares go on, and the next process
finds them. So nothing here ends one because the process ends.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress

from dra_driver import __version__, log
from dra_driver.adapters.clock import SystemClock
from dra_driver.app.gpus import NodeGpus, open_gpus
from dra_driver.app.mps_parts import mpsd_lock, mpsd_socket, open_supervisor
from dra_driver.app.pages import open_recorder
from dra_driver.app.signals import StopSignals
from dra_driver.errors import AdapterError
from dra_driver.loops.guard import LoopGuard
from dra_driver.loops.health_monitor import HealthMonitor
from dra_driver.model.device import Inventory
from dra_driver.mps.server import MpsdServer
from dra_driver.mps.service import MpsdService
from dra_driver.plan.health import XidPolicy
from dra_driver.ports import Recorder
from dra_driver.settings import Settings
from dra_driver.sockets import only_process
from dra_driver.state.current import Current

_LOG = log.get(__name__)
_LOOPS_STOP_S = 15.0


def run(settings: Settings) -> int:
    """Serve until a signal; gives the exit status. The settings have passed `MPSD_CHECKS`.

    Raises:
        SettingsError: a setting turns out to be impossible.
        FatalError: the process cannot do its work.
    """
    signals = StopSignals()
    signals.install()
    return Mpsd(settings, signals).run()


class Mpsd:
    """One process; `run` is called once."""

    def __init__(self, settings: Settings, signals: StopSignals) -> None:
        self._settings = settings
        self._signals = signals
        self._clock = SystemClock()
        self._fatal: list[str] = []
        self._inventory: Current[Inventory | None] = Current(None)
        self._problem = Current("the GPUs have not been read yet")
        self._clean = True

    def run(self) -> int:
        with ExitStack() as owned:
            gpus = owned.enter_context(open_gpus(self._settings))
            owned.enter_context(
                only_process(mpsd_lock(self._settings), what="supervises this node's MPS")
            )
            self._serve(gpus, owned)
            if not self._clean:
                # Threads that hang in a call would keep the interpreter alive for ever.
                self._end()
                sys.stderr.flush()
                os._exit(self._status())
        self._end()
        return self._status()

    def _serve(self, gpus: NodeGpus, owned: ExitStack) -> None:
        recorder = owned.enter_context(open_recorder(self._settings, process="mpsd"))
        # Calls must not meet a supervisor that does not know its GPUs, if there are any.
        if not self._signals.completes(lambda: self._look(gpus), name="first look at the GPUs"):
            self._clean = False
            return
        parts = owned.enter_context(
            open_supervisor(
                self._settings, gpus=gpus, inventory=self._inventory.get, recorder=recorder
            )
        )
        server = MpsdServer(
            mpsd_socket(self._settings), MpsdService(parts.supervisor, clock=self._clock)
        )
        loops = LoopGuard(self._die)
        try:
            server.start()
            try:
                loops.start("gpus", self._monitor(gpus, recorder).run)
                loops.start("keeper", parts.keeper.run)
                loops.start("socket", server.watch)
                with self._http(loops, recorder):
                    _LOG.info("Ready for shares", version=__version__)
                    self._signals.stop.wait()
                    _LOG.info("Stopping; MPS daemons that have shares go on")
            finally:
                self._clean = server.stop(grace_s=self._grace_s())
        finally:
            if left := loops.stop(_LOOPS_STOP_S):
                _LOG.warning("Loops did not stop", loops=left)
                self._clean = False

    def _look(self, gpus: NodeGpus) -> None:
        with suppress(AdapterError):
            self._inventory.set(gpus.library.inventory())

    def _monitor(self, gpus: NodeGpus, recorder: Recorder) -> HealthMonitor:
        return HealthMonitor(
            gpus.library,
            self._inventory,
            problem=self._problem,
            clock=self._clock,
            recorder=recorder,
            policy=XidPolicy(),
        )

    def _http(self, loops: LoopGuard, recorder: Recorder) -> ExitStack:
        stack = ExitStack()
        if self._settings.http_endpoint is not None:
            from dra_driver.app.mpsd_probes import serve_http  # noqa: PLC0415 - where it is on

            stack.enter_context(
                serve_http(
                    self._settings.http_endpoint,
                    socket=mpsd_socket(self._settings),
                    problem=self._problem,
                    loops=loops,
                    recorder=recorder,
                )
            )
        return stack

    def _grace_s(self) -> float:
        return 0.0 if self._fatal else self._settings.shutdown_grace_seconds

    def _die(self, text: str) -> None:
        self._fatal.append(text)
        self._signals.stop.set()

    def _status(self) -> int:
        return 1 if self._fatal else 0

    def _end(self) -> None:
        for text in self._fatal:
            _LOG.error("Ending because the supervisor cannot go on", reason=text)
        _LOG.info("Stopped", status=self._status())
