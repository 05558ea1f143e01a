"""The process `gpuslice plugin`: what is built from what, in which order it starts and stops.

The kubelet is answered first: its registration call is due within a second, while reading GPUs and
importing the client of the API server take as long as they take. Claims that arrive meanwhile wait.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import ExitStack, suppress

from dra_driver import __version__, log
from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.memory import share_arenas
from dra_driver.app.checks import plugin_paths
from dra_driver.app.folders import check_folders
from dra_driver.app.gpus import open_gpus
from dra_driver.app.hardware import Hardware, open_hardware
from dra_driver.app.node import Node, NodeBuilder
from dra_driver.app.pages import open_recorder
from dra_driver.app.signals import StopSignals
from dra_driver.errors import AdapterError, FatalError
from dra_driver.kubelet.operations import LateOperations
from dra_driver.kubelet.paths import SocketPaths
from dra_driver.kubelet.registration import Registration
from dra_driver.kubelet.server import KubeletServer
from dra_driver.loops.guard import LoopGuard
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.health import HealthRow
from dra_driver.ports import Clock, Recorder
from dra_driver.settings import Settings
from dra_driver.state.current import Current

_LOG = log.get(__name__)
_RECOVERY_S = 30.0
_LOOPS_STOP_S = 2.0
"""What loops get where calls took all of the grace."""

_NEW_OBJECTS = 10_000
"""Between two looks of the garbage collector; Python's 700 are fewer than one claim makes."""


def run(settings: Settings) -> int:
    """Serve until a signal; gives the exit status. The settings have passed `PLUGIN_CHECKS`.

    Raises:
        SettingsError: a setting turns out to be impossible.
        FatalError: the process cannot do its work.
    """
    share_arenas()
    signals = StopSignals()
    signals.install()
    return Plugin(settings, signals).run()


class Plugin:
    """One process; `run` is called once."""

    def __init__(self, settings: Settings, signals: StopSignals) -> None:
        self._settings = settings
        self._signals = signals
        self._clock: Clock = SystemClock()
        self._fatal: list[str] = []
        self._registration: Current[Registration] = Current(Registration())
        self._health: Current[tuple[HealthRow, ...]] = Current(())
        self._operations = LateOperations(self._clock)
        self._node: Node | None = None
        self._started = False

    def run(self) -> int:
        paths = plugin_paths(self._settings)
        with (
            open_recorder(self._settings, process="plugin") as recorder,
            open_gpus(self._settings) as gpus,
            ExitStack() as owned,
        ):
            check_folders(self._settings)
            server = self._server(paths, recorder)
            server.start()
            loops = LoopGuard(self._die)
            over = True
            try:
                # The kubelet is answered by now: what sharing needs may take its time.
                hardware = owned.enter_context(open_hardware(self._settings, gpus, recorder))
                self._serve(hardware, recorder, loops, paths)
            finally:
                over = self._stop(server, loops)
            if not over:
                # Threads that hang in a call would keep the interpreter alive for ever, and their
                # locks those who close things.
                status = self._end()
                sys.stderr.flush()
                os._exit(status)
        return self._end()

    def _serve(
        self, hardware: Hardware, recorder: Recorder, loops: LoopGuard, paths: SocketPaths
    ) -> None:
        with ExitStack() as owned:
            node = NodeBuilder(
                settings=self._settings, hardware=hardware, clock=self._clock, recorder=recorder
            ).build(self._health)
            owned.callback(node.close)
            self._node = node
            self._serve_http(owned, recorder, loops, paths)
            for name, loop in hardware.sharing.loops:
                loops.start(name, loop)
            if self._settings.checkpoint_hook:
                # Before the first claim: what is prepared without the hook stays without it.
                node.checkpoints.installer.look()
            if self._signals.completes(lambda: self._recover(node, hardware), name="recovery"):
                self._operations.set(node.state)
                for name, loop in node.loops(self._signals.stop):
                    loops.start(name, loop)
                self._started = True
                _spare_what_stays()
                _LOG.info("Ready for claims", version=__version__, node=self._settings.node_name)
                self._signals.stop.wait()
            _LOG.info("Stopping")

    def _recover(self, node: Node, hardware: Hardware) -> None:
        """Let the node agree with the journal before the first claim is looked at."""
        gpus: tuple[GpuUuid, ...] = ()
        # Claims are answered from here on, so they must not meet a node that was never looked at;
        # where the GPUs cannot be read, the health monitor tells and goes on trying.
        with suppress(AdapterError):
            inventory = hardware.gpus.inventory()
            node.seen.gpus.set(inventory)
            gpus = tuple(gpu.uuid for gpu in inventory.gpus)
        deadline = Deadline(self._clock.monotonic_s() + _RECOVERY_S)
        try:
            node.state.recover(deadline, gpus=gpus)
        except AdapterError as error:
            raise FatalError(f"cannot start: {error}") from error

    def _stop(self, server: KubeletServer, loops: LoopGuard) -> bool:
        """False where threads are left behind."""
        grace_s = 0.0 if self._fatal else self._settings.shutdown_grace_seconds
        end_s = self._clock.monotonic_s() + grace_s
        drained = server.stop(grace_s=grace_s, now=self._signals.hurry)
        self._health.close()
        if self._node is not None:
            self._node.end_waits()
        if left := loops.stop(max(_LOOPS_STOP_S, end_s - self._clock.monotonic_s())):
            _LOG.warning("Loops did not stop", loops=left)
            return False
        return drained and self._started

    def _end(self) -> int:
        status = 1 if self._fatal else 0
        for text in self._fatal:
            _LOG.error("Ending because the driver cannot go on", reason=text)
        _LOG.info("Stopped", status=status)
        return status

    def _die(self, text: str) -> None:
        self._fatal.append(text)
        self._signals.stop.set()

    def _server(self, paths: SocketPaths, recorder: Recorder) -> KubeletServer:
        return KubeletServer(
            paths,
            operations=self._operations,
            health=self._health,
            registration=self._registration,
            on_registered=self._kick,
            clock=self._clock,
            recorder=recorder,
        )

    def _kick(self) -> None:
        if self._node is not None:
            self._node.publisher.kick()

    def _serve_http(
        self, owned: ExitStack, recorder: Recorder, loops: LoopGuard, paths: SocketPaths
    ) -> None:
        if self._settings.http_endpoint is None or self._node is None:
            return
        from dra_driver.app.probes import serve_http  # noqa: PLC0415 - only where it is on

        owned.enter_context(
            serve_http(
                self._settings.http_endpoint,
                node=self._node,
                registration=self._registration,
                loops=loops,
                paths=paths,
                recorder=recorder,
            )
        )


def _spare_what_stays() -> None:
    """Keep the garbage collector off modules and records, or each claim pays for all that live."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
