"""Says what happens to shared GPUs, and lets the supervisor of shares know what is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from dra_driver import log
from dra_driver.errors import AdapterError
from dra_driver.loops.backoff import Backoff
from dra_driver.loops.sharing_link import Link, SharingLink
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.record import Record
from dra_driver.plan.sharing_news import abilities_differ, faults, losses, shares_of
from dra_driver.ports import Clock, EventSink, Recorder, SharingStates
from dra_driver.state.current import Current

_LOG = log.get(__name__)
_TICK_S = 0.2
_ASSERT_S = 8.0
"""For one try to assert all shares; less than loops get to stop."""

Assert = Callable[[Deadline], tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingTiming:
    """All in seconds.

    Attributes:
        fault_s: how long a GPU has to be in FAULT before its claims are told.
        patience_s: how long the supervisor may be away before readiness says so: an upgrade of
            its image takes less, and tenants do not notice.
        retry_first_s, retry_cap_s: pauses after shares could not be asserted.
    """

    fault_s: float = 5.0
    patience_s: float = 30.0
    retry_first_s: float = 1.0
    retry_cap_s: float = 30.0


class SharingMonitor:
    """Follows the supervisor of shares; nothing is started before `run`.

    Args:
        source: tells the states.
        states: gets them; the last ones stay while the supervisor is away.
        held: all records of claims; asked when Events are due.
        assert_shares: makes the supervisor hold what the journal says, and gives what could not
            be done; called whenever the supervisor begins to tell, as it may have lost its memory.
        on_abilities: called when what sharing can promise may have changed.
        events: gets Events about claims whose processes were hit.
        recorder: gauges `mpsd_connected`, `mps_gpus` and `mps_clients`; counts
            `mps_server_restarts_total`.
    """

    def __init__(
        self,
        source: SharingStates,
        states: Current[tuple[GpuSharing, ...]],
        *,
        held: Callable[[], tuple[Record, ...]],
        assert_shares: Assert,
        on_abilities: Callable[[], None],
        events: EventSink,
        clock: Clock,
        recorder: Recorder,
        timing: SharingTiming | None = None,
    ) -> None:
        self._timing = timing = timing or SharingTiming()
        self._states = states
        self._held = held
        self._assert_shares = assert_shares
        self._on_abilities = on_abilities
        self._events = events
        self._clock = clock
        self._recorder = recorder
        self._link = SharingLink(source, states, clock=clock)
        self._backoff = Backoff(first_s=timing.retry_first_s, cap_s=timing.retry_cap_s)
        self._seen: tuple[GpuSharing, ...] = ()
        self._known_link: Link | None = None
        self._sessions = 0
        self._assert_at_s: float | None = None
        self._faulty_since_s: dict[GpuUuid, float] = {}
        self._told: set[GpuUuid] = set()

    def run(self, stop: Event) -> None:
        version = -1
        with self._following() as alive:
            while not stop.is_set():
                version, states = self._states.wait_newer(version, _TICK_S)
                self._note(states)
                self._note_link(self._link.state.get())
                self._tell_faults()
                self._assert_when_due()
                if not alive() and not stop.is_set():
                    raise RuntimeError("the thread that follows the supervisor ended by itself")
                if self._states.closed:
                    stop.wait()

    def wait_known(self, stop: Event, timeout_s: float) -> None:
        """Wait until the supervisor told something first, the time is over or `stop` is set."""
        end_s = self._clock.monotonic_s() + timeout_s
        while not stop.is_set():
            version, link = self._link.state.snapshot()
            left_s = end_s - self._clock.monotonic_s()
            if link.sessions or left_s <= 0:
                return
            self._link.state.wait_newer(version, min(left_s, _TICK_S))

    def problem(self) -> str:
        """Why the supervisor tells nothing, once that has lasted; empty while all is well."""
        link = self._link.state.get()
        away_s = 0.0 if link.lost_at_s is None else self._clock.monotonic_s() - link.lost_at_s
        if link.lost_at_s is None or away_s <= self._timing.patience_s:
            return ""
        return (
            f"the supervisor of shares has been away for {away_s:.0f} s, so no new share can be "
            f"prepared; shares that run go on: {link.problem}"
        )

    @contextmanager
    def _following(self) -> Iterator[Callable[[], bool]]:
        closing = Event()
        thread = Thread(target=self._link.run, args=(closing,), name="sharing-link")
        thread.start()
        try:
            yield thread.is_alive
        finally:
            closing.set()
            self._link.close()
            thread.join()

    def _note(self, states: tuple[GpuSharing, ...]) -> None:
        before, self._seen = self._seen, states
        if states == before:
            return
        _log_phases(before, states)
        self._measure(before, states)
        for gpu, count in losses(before, states).items():
            for _ in range(count):
                self._recorder.count("mps_server_restarts_total")
            _LOG.warning("The MPS server of a GPU ended", gpu=gpu)
            self._tell(gpu, reason="MpsServerLost", text=_lost_text(gpu))
        faulty = faults(states)
        now_s = self._clock.monotonic_s()
        self._faulty_since_s = {gpu: self._faulty_since_s.get(gpu, now_s) for gpu in faulty}
        self._told.intersection_update(faulty)
        if abilities_differ(before, states):
            self._on_abilities()

    def _note_link(self, link: Link) -> None:
        if link == self._known_link:
            return
        self._known_link = link
        self._recorder.gauge("mpsd_connected", float(link.lost_at_s is None))
        if link.sessions != self._sessions:
            self._sessions = link.sessions
            self._backoff.reset()
            self._assert_at_s = self._clock.monotonic_s()
            self._on_abilities()

    def _assert_when_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if self._assert_at_s is None or now_s < self._assert_at_s:
            return
        self._assert_at_s = None
        try:
            problems = self._assert_shares(Deadline(now_s + _ASSERT_S))
        except AdapterError as error:
            problems = (str(error),)
        if problems:
            _LOG.warning("Not all shares are asserted; trying again", problems=list(problems))
            self._assert_at_s = self._clock.monotonic_s() + self._backoff.next_s()

    def _tell_faults(self) -> None:
        now_s = self._clock.monotonic_s()
        for gpu, state in faults(self._seen).items():
            lasted_s = now_s - self._faulty_since_s.get(gpu, now_s)
            if gpu not in self._told and lasted_s >= self._timing.fault_s:
                self._told.add(gpu)
                self._tell(gpu, reason="MpsFault", text=_fault_text(state))

    def _tell(self, gpu: GpuUuid, *, reason: str, text: str) -> None:
        try:
            shares = shares_of(self._held()).get(gpu, {})
        except AdapterError as error:
            _LOG.warning("Cannot tell whose shares were hit", gpu=gpu, error=str(error))
            return
        for claim in _sorted(shares.values()):
            self._events.emit(claim, reason=reason, text=text)

    def _measure(self, before: tuple[GpuSharing, ...], states: tuple[GpuSharing, ...]) -> None:
        for phase in MpsPhase:
            count = sum(state.phase is phase for state in states)
            self._recorder.gauge("mps_gpus", count, phase=phase.value)
        clients = {state.gpu: 0 for state in before}
        clients |= {state.gpu: state.clients or 0 for state in states}
        for gpu, count in clients.items():
            self._recorder.gauge("mps_clients", count, gpu=gpu)


def _log_phases(before: Iterable[GpuSharing], states: Iterable[GpuSharing]) -> None:
    known: Mapping[GpuUuid, GpuSharing] = {each.gpu: each for each in before}
    for state in states:
        was = known.get(state.gpu, GpuSharing(gpu=state.gpu))
        if (was.phase, was.message) == (state.phase, state.message):
            continue
        level = _LOG.warning if state.phase is MpsPhase.FAULT else _LOG.info
        level(
            "Sharing of a GPU changed",
            gpu=state.gpu,
            phase=state.phase.value,
            shares=len(state.shares),
            message=state.message,
        )


def _lost_text(gpu: GpuUuid) -> str:
    return (
        f"the MPS server of GPU {gpu} ended and is started again: processes that used it are lost "
        "and get CUDA errors; restart the pod"
    )


def _fault_text(state: GpuSharing) -> str:
    return (
        f"MPS of GPU {state.gpu} does not work, so this claim's processes cannot use the GPU; it "
        f"is tried again: {state.message or 'the supervisor gave no reason'}"
    )


def _sorted(claims: Iterable[ClaimRef]) -> tuple[ClaimRef, ...]:
    return tuple(sorted(set(claims), key=lambda claim: (claim.namespace, claim.name, claim.uid)))
