"""Follows what the supervisor of shares tells, over all its restarts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Event, Lock

from dra_driver import log
from dra_driver.errors import AdapterError
from dra_driver.loops.backoff import Backoff
from dra_driver.model.mps import GpuSharing
from dra_driver.ports import Clock, SharingStates, SharingWatch
from dra_driver.state.current import Current

_LOG = log.get(__name__)
_RETRY_FIRST_S = 0.2
_RETRY_CAP_S = 3.0
_SETTLE_S = 0.05
"""After a change, before the next one is looked at: a wave of claims changes one GPU many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How the supervisor is reached.

    Attributes:
        sessions: how often it began to tell; it knows nothing of before after any of them.
        lost_at_s: since when it tells nothing, on the monotonic clock; None while it does.
        problem: why it tells nothing; for people.
    """

    sessions: int = 0
    lost_at_s: float | None = None
    problem: str = ""


class SharingLink:
    """Keeps `states` as the supervisor tells them; while it is away they stay: tenants go on.

    Args:
        source: tells the states.
        states: gets each new set.
        clock: says since when nobody tells.
    """

    def __init__(
        self,
        source: SharingStates,
        states: Current[tuple[GpuSharing, ...]],
        *,
        clock: Clock,
    ) -> None:
        self._source = source
        self._states = states
        self._clock = clock
        self._backoff = Backoff(first_s=_RETRY_FIRST_S, cap_s=_RETRY_CAP_S)
        self._lock = Lock()
        self._closed = Event()
        self._watch: SharingWatch | None = None
        self.state: Current[Link] = Current(
            Link(lost_at_s=clock.monotonic_s(), problem="it has not answered yet")
        )

    def run(self, stop: Event) -> None:
        """Follow until `stop` and `close`."""
        while not (stop.is_set() or self._closed.is_set()):
            try:
                self._follow()
                self._lost("it ended what it was telling")
            except AdapterError as error:
                self._lost(str(error))
            stop.wait(self._backoff.next_s())

    def close(self) -> None:
        """End the watch, now and from now on."""
        with self._lock:
            self._closed.set()
            watch = self._watch
        if watch is not None:
            watch.close()

    def _follow(self) -> None:
        watch = self._source.watch()
        if not self._open(watch):
            return
        try:
            for number, states in enumerate(watch):
                self._states.set(states)
                if not number:
                    self._found()
                self._closed.wait(_SETTLE_S)
        finally:
            watch.close()

    def _open(self, watch: SharingWatch) -> bool:
        with self._lock:
            self._watch = watch
            closed = self._closed.is_set()
        if closed:
            watch.close()
        return not closed

    def _found(self) -> None:
        self._backoff.reset()
        link = self.state.get()
        self.state.set(Link(sessions=link.sessions + 1))
        _LOG.info("The supervisor of shares tells its state", session=link.sessions + 1)

    def _lost(self, problem: str) -> None:
        if self._closed.is_set():
            return
        link = self.state.get()
        if problem != link.problem:
            _LOG.warning("The supervisor of shares tells nothing; trying again", error=problem)
        lost_at_s = self._clock.monotonic_s() if link.lost_at_s is None else link.lost_at_s
        self.state.set(replace(link, lost_at_s=lost_at_s, problem=problem))
