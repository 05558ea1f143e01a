"""What the kubelet tells of containers, asked before there is a call that needs it."""

from __future__ import annotations

import os
from threading import Event

from dra_driver import log
from dra_driver.checkpoint.world import HookWorld
from dra_driver.errors import AdapterError
from dra_driver.model.cuda import ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.owner import PodClaims

LOOK_S = 1.0
"""Between two looks at the claims of this node."""

LONGEST_S = 16.0
"""Between two questions while claims stay the same: a container may be started anew."""

PATIENCE_S = 1.0
"""Of a question that nobody waits for."""

_log = log.get(__name__)


class ToldPods:
    """Lets no dump wait for the kubelet, which may be slow; safe for many threads."""

    def __init__(self, world: HookWorld) -> None:
        self._world = world
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._latest: tuple[float, tuple[PodClaims, ...]] = (0.0, ())

    def ask(self, deadline: Deadline) -> tuple[PodClaims, ...]:
        """Ask now; as `PodResources.pods`."""
        asked_s = self._world.clock.monotonic_s()
        told = self._world.pods.pods(deadline)
        if asked_s >= self._latest[0]:
            self._latest = (asked_s, told)
        return told

    def since(self, process: ProcessRef) -> tuple[PodClaims, ...]:
        """Give what was told last, if that was asked after a process had started; else nothing.

        Of the containers of its pod that the kubelet lists it was all known then, and stays: it
        starts none before all claims of the pod are prepared.
        """
        asked_s, told = self._latest
        # It started within the tick that its time names. That counts a machine's sleep, our clock
        # does not: after one, what was told seems older than it is.
        return told if asked_s * self._ticks_per_s >= process.started + 1 else ()

    def run(self, stop: Event) -> None:
        """Ask soon after claims have changed, and ever more seldom then, until `stop`.

        So a container is known within about the time that it took to start.
        """
        known: frozenset[str] = frozenset()
        pause_s = due_s = 0.0
        while not stop.wait(LOOK_S):
            now_s = self._world.clock.monotonic_s()
            held = self._held()
            if held != known:
                known, pause_s, due_s = held, LOOK_S, now_s
            if known and now_s >= due_s:
                self._ask_ahead()
                due_s = now_s + pause_s
                pause_s = min(2 * pause_s, LONGEST_S)

    def _held(self) -> frozenset[str]:
        try:
            return frozenset(record.claim.uid for record in self._world.records())
        except AdapterError:
            return frozenset()  # whoever needs the journal says so

    def _ask_ahead(self) -> None:
        try:
            self.ask(Deadline(self._world.clock.monotonic_s() + PATIENCE_S))
        except AdapterError as error:
            _log.debug("The kubelet does not tell of containers", cause=str(error))
