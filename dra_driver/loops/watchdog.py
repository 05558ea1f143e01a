"""Watches the memory of claims on shared GPUs, and acts as their configs say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event

from dra_driver import log
from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing
from dra_driver.model.owner import PodClaims
from dra_driver.model.record import Record
from dra_driver.plan.watchdog import evaluate, watched
from dra_driver.plan.watchdog_texts import exceeded_text, stranger_text, terminated_text
from dra_driver.plan.watchdog_values import (
    Findings,
    Seen,
    Stranger,
    StrangerKind,
    Usage,
    Victim,
    Watched,
)
from dra_driver.ports import (
    ClientTerminator,
    Clock,
    EventSink,
    GpuControl,
    PodResources,
    ProcessOwners,
    Recorder,
)

EXCEEDED = "ShareMemoryExceeded"
TERMINATED = "ShareClientTerminated"
BYPASSED = "ShareBypassed"
"""Reasons of the Events."""

_CALL_S = 5.0
_REMIND_S = 600.0
_ENDING_S = 30.0
"""How long a client that was told to end may still be listed with its memory."""

_log = log.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Eyes:
    """What the watchdog sees with.

    Attributes:
        records: all records of the node; raises AdapterError.
        sharing: newest states of GPUs, in any order; a GPU that is missing is not known yet.
    """

    control: GpuControl
    owners: ProcessOwners
    pods: PodResources
    records: Callable[[], tuple[Record, ...]]
    sharing: Callable[[], tuple[GpuSharing, ...]]


@dataclass(slots=True)
class _Memory:
    """What was said and done, so that it is not said and done again."""

    over_told_s: dict[tuple[str, GpuUuid], float] = field(default_factory=dict)
    ending_s: dict[tuple[GpuUuid, int, int], float] = field(default_factory=dict)
    strangers: dict[GpuUuid, tuple[Stranger, ...]] = field(default_factory=dict)
    series: dict[GpuUuid, set[tuple[str, str]]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


class Watchdog:
    """Looks at all shared GPUs every `interval_s`.

    Above its memory, a claim gets an Event, again every ten minutes while it stays there, and anew
    when it has been within its memory between. Its clients are ended only where its config says
    so. A GPU that cannot be looked at changes nothing.

    Args:
        eyes: what to look at.
        terminator: ends clients.
        events: where users read of it.
        clock: of reminders and deadlines.
        recorder: of the metrics.
        boot_id: of this boot; records of others hold nothing.
        interval_s: pause between looks.
    """

    def __init__(
        self,
        eyes: Eyes,
        *,
        terminator: ClientTerminator,
        events: EventSink,
        clock: Clock,
        recorder: Recorder,
        boot_id: str,
        interval_s: float,
    ) -> None:
        self._eyes = eyes
        self._terminator = terminator
        self._events = events
        self._clock = clock
        self._recorder = recorder
        self._boot_id = boot_id
        self._interval_s = interval_s
        self._memory = _Memory()

    def run(self, stop: Event) -> None:
        """Look until `stop` is set; the first look comes after one interval."""
        while not stop.wait(self._interval_s):
            self.look(stop)

    def look(self, stop: Event) -> None:
        """Look at every shared GPU once."""
        try:
            on = watched(self._eyes.records(), self._boot_id)
        except AdapterError as error:
            self._problem("records", str(error))
            return
        self._problem("records", "")
        self._forget_gone(on)
        for gpu in on.shares:
            if stop.is_set():
                return
            findings = self._findings(gpu, on)
            if findings is not None:
                self._tell_strangers(gpu, findings.strangers)
                self._measure(gpu, findings.usages)
                for usage in findings.usages:
                    self._judge(usage)
        self._count_strangers()

    def _findings(self, gpu: GpuUuid, on: Watched) -> Findings | None:
        now_s = self._clock.monotonic_s()
        ending = self._memory.ending_s
        for key in [key for key, until_s in ending.items() if until_s <= now_s]:
            del ending[key]
        # Before the processes: a server that is listed later has replaced the one that is known.
        servers = self._servers(gpu)
        try:
            seen = self._seen(gpu)
        except AdapterError as error:
            self._problem(f"GPU {gpu}", str(error))
            return None
        self._problem(f"GPU {gpu}", "")
        told = frozenset((pid, started) for where, pid, started in ending if where == gpu)
        return evaluate(gpu, seen, on=on, servers=servers, ending=told)

    def _seen(self, gpu: GpuUuid) -> tuple[Seen, ...]:
        """Raises AdapterError where one owner cannot be read: sums would be wrong."""
        return tuple(
            Seen(process=process, owner=self._eyes.owners.owner(process.pid))
            for process in self._eyes.control.processes(gpu)
        )

    def _servers(self, gpu: GpuUuid) -> frozenset[int] | None:
        for state in self._eyes.sharing():
            if state.gpu == gpu:
                if state.server_pid is not None:
                    return frozenset((state.server_pid,))
                return frozenset() if state.simulated else None
        return None

    def _judge(self, usage: Usage) -> None:
        key = (usage.claim.uid, usage.gpu)
        told_s = self._memory.over_told_s
        if usage.under:
            told_s.pop(key, None)
        if not usage.over:
            return
        now_s = self._clock.monotonic_s()
        if key not in told_s:
            self._recorder.count("share_exceeded_total", policy=usage.on_exceed.value)
        if key not in told_s or now_s - told_s[key] >= _REMIND_S:
            told_s[key] = now_s
            text = exceeded_text(usage, self._pods())
            _log.warning("A claim is above its device memory", claim=str(usage.claim), text=text)
            self._events.emit(usage.claim, reason=EXCEEDED, text=text)
        for victim in usage.victims:
            self._terminate(usage, victim)

    def _terminate(self, usage: Usage, victim: Victim) -> None:
        where = f"clients of GPU {usage.gpu}"
        deadline = Deadline(self._clock.monotonic_s() + _CALL_S)
        try:
            # The pid may be another process's by now.
            owner = self._eyes.owners.owner(victim.pid)
            if owner is None or owner.started != victim.started:
                return
            self._terminator.terminate_client(usage.gpu, victim.pid, deadline)
        except NotFound:
            return  # it ended by itself, or its server did
        except AdapterError as error:
            self._recorder.count("clients_terminated_total", outcome="failed")
            self._problem(where, str(error))
            return
        self._problem(where, "")
        self._recorder.count("clients_terminated_total", outcome="ok")
        until_s = self._clock.monotonic_s() + _ENDING_S
        self._memory.ending_s[usage.gpu, victim.pid, victim.started] = until_s
        text = terminated_text(usage, victim)
        _log.warning("Ended a client above its claim's memory", claim=str(usage.claim), text=text)
        self._events.emit(usage.claim, reason=TERMINATED, text=text)

    def _tell_strangers(self, gpu: GpuUuid, strangers: tuple[Stranger, ...]) -> None:
        before = self._memory.strangers.get(gpu, ())
        self._memory.strangers[gpu] = strangers
        for stranger in strangers:
            if stranger in before:
                continue
            text = stranger_text(stranger)
            _log.warning("A shared GPU is used past its shares", kind=stranger.kind, text=text)
            if stranger.claim is not None:
                self._events.emit(stranger.claim, reason=BYPASSED, text=text)

    def _measure(self, gpu: GpuUuid, usages: tuple[Usage, ...]) -> None:
        recorder = self._recorder
        for usage in usages:
            namespace, claim = usage.claim.namespace, usage.claim.name
            recorder.gauge(
                "share_memory_used_bytes",
                usage.used_bytes,
                namespace=namespace,
                claim=claim,
                gpu=gpu,
            )
            recorder.gauge(
                "share_memory_limit_bytes",
                usage.limit_bytes,
                namespace=namespace,
                claim=claim,
                gpu=gpu,
            )
            recorder.gauge(
                "share_clients", usage.clients, namespace=namespace, claim=claim, gpu=gpu
            )
            self._memory.series.setdefault(gpu, set()).add((namespace, claim))

    def _count_strangers(self) -> None:
        kinds = [each.kind for found in self._memory.strangers.values() for each in found]
        for kind in StrangerKind:
            self._recorder.gauge("strangers", kinds.count(kind), kind=kind.value)

    def _forget_gone(self, on: Watched) -> None:
        """Let go of what concerns claims that share a GPU no more."""
        memory = self._memory
        held = {(each.claim.uid, gpu) for gpu, shares in on.shares.items() for each in shares}
        for key in [key for key in memory.over_told_s if key not in held]:
            del memory.over_told_s[key]
        for gpu in [gpu for gpu in memory.strangers if gpu not in on.shares]:
            del memory.strangers[gpu]
        for gpu, series in list(memory.series.items()):
            names = {(each.claim.namespace, each.claim.name) for each in on.shares.get(gpu, ())}
            for namespace, claim in series - names:
                for name in ("used_bytes", "limit_bytes"):
                    self._recorder.forget(
                        f"share_memory_{name}", namespace=namespace, claim=claim, gpu=gpu
                    )
                self._recorder.forget("share_clients", namespace=namespace, claim=claim, gpu=gpu)
            memory.series[gpu] = series & names
            if not memory.series[gpu]:
                del memory.series[gpu]

    def _pods(self) -> tuple[PodClaims, ...]:
        """Names for texts alone: without the kubelet they say less."""
        try:
            pods = self._eyes.pods.pods(Deadline(self._clock.monotonic_s() + _CALL_S))
        except AdapterError as error:
            self._problem("pods", str(error))
            return ()
        self._problem("pods", "")
        return pods

    def _problem(self, about: str, text: str) -> None:
        """Log what cannot be done, once for each change of its text; empty: it can be done."""
        before = self._memory.problems.pop(about, "")
        if text:
            self._memory.problems[about] = text
        if text and text != before:
            _log.warning("The watchdog cannot do its work", about=about, error=text)
        elif before and not text:
            _log.info("The watchdog can do its work again", about=about)
