"""Keeps this node's ResourceSlices as the inventory says, whatever is done to them.

The slices stay when the process ends: without them the scheduler would forget what claims hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread

from dra_driver import log
from dra_driver.errors import AdapterError, Conflict, NotFound
from dra_driver.loops.alarm import Alarm
from dra_driver.loops.backoff import Backoff, Fights
from dra_driver.loops.capabilities import Capabilities
from dra_driver.loops.slice_sync import BuildPool, FieldsDropped, Published, SliceSync, Stopped
from dra_driver.loops.slice_watch import SliceWatch
from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import Inventory
from dra_driver.model.pool import Pool
from dra_driver.ports import ApiProbe, Clock, Recorder, SliceApi
from dra_driver.state.current import Current

_LOG = log.get(__name__)
_TICK_S = 0.5
_TEXTS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherTiming:
    """All in seconds.

    Attributes:
        settle_s: after another's change, before it is looked at; a kubelet that starts deletes all
            slices of its node one after the other.
        kick_s: after `kick`.
        recheck_s: between looks at the server's version and the Node.
        relist_s: between lists when nothing seems to have changed.
        retry_first_s, retry_cap_s: pauses after failures that may pass.
        refused_first_s, refused_s: pauses after refusals, which only people end; short ones at
            first, as a server that has just started does not know anybody's rights yet.
        watch_s: how long one watch is kept open.
        distrust_s: how long to do without fields that the server dropped unexpectedly.
    """

    settle_s: float = 0.3
    kick_s: float = 1.0
    recheck_s: float = 30.0
    relist_s: float = 600.0
    retry_first_s: float = 0.2
    retry_cap_s: float = 15.0
    refused_first_s: float = 1.0
    refused_s: float = 60.0
    watch_s: float = 300.0
    distrust_s: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishState:
    """How publishing stands, for readiness and health.

    Attributes:
        pool: what the server was last seen to have; None before the first success.
        capability: of the API server, as of `pool`.
        problem: why the newest inventory is not published; empty when it is.
    """

    pool: Pool | None = None
    capability: ApiCapability | None = None
    problem: str = "nothing has been published yet"

    @property
    def published(self) -> bool:
        """Whether the node has offered its devices since the process started."""
        return self.pool is not None


@dataclass(slots=True)
class _Progress:
    """What the publishing thread remembers between passes."""

    published: Published | None = None
    listed_at_s: float = 0.0
    told: set[str] = field(default_factory=set)
    failing: bool = False


class Publisher:
    """Reconciles until it is stopped; nothing is started before `run`.

    Args:
        slices: this driver's slices of this node.
        probe: questions about the server and the node.
        inventory: the newest one; None until it was read first.
        build: turns an inventory into the pool; asked again at every pass.
        driver: driver name.
        node: name of the node.
        clock: of all pauses.
        recorder: counts `slice_writes_total` and `publish_failures_total`; gauges
            `published_devices`.
        timing: pauses.
    """

    def __init__(
        self,
        *,
        slices: SliceApi,
        probe: ApiProbe,
        inventory: Current[Inventory | None],
        build: BuildPool,
        driver: str,
        node: str,
        clock: Clock,
        recorder: Recorder,
        timing: PublisherTiming | None = None,
    ) -> None:
        self._timing = timing = timing or PublisherTiming()
        self._inventory = inventory
        self._clock = clock
        self._recorder = recorder
        self._alarm = Alarm(clock)
        self._stale = Event()
        self._fights = Fights(clock, settle_s=timing.settle_s, cap_s=timing.recheck_s)
        self._progress = _Progress()
        self._backoff = self._new_backoff()
        self._refusals = Backoff(first_s=timing.refused_first_s, cap_s=timing.refused_s)
        self._capabilities = Capabilities(
            probe, driver=driver, node=node, clock=clock, distrust_s=timing.distrust_s
        )
        self._watch = self._new_watch(slices)
        self._sync = SliceSync(
            slices=slices,
            probe=probe,
            capabilities=self._capabilities,
            build=build,
            observer=self._watch,
            recorder=recorder,
            node=node,
        )
        self.state: Current[PublishState] = Current(PublishState())

    def kick(self) -> None:
        """Look again soon, whatever is believed: the kubelet has just started, or devices changed.

        Called from any thread.
        """
        self._stale.set()
        self._alarm.ask(self._timing.kick_s)

    def refresh(self) -> None:
        """Build the pool anew at once: what it is built from changed beside the inventory.

        Called from any thread.
        """
        self._alarm.ask(0.0)

    def run(self, stop: Event) -> None:
        """Publish until `stop`; slices stay as they are then, at whatever moment it is set."""
        self._alarm.ask(0.0)
        with self._helpers() as alive:
            while not stop.is_set():
                if self._alarm.wait(_TICK_S):
                    self._pass(stop)
                elif not alive():
                    raise RuntimeError("a thread of the publisher ended by itself")

    @contextmanager
    def _helpers(self) -> Iterator[Callable[[], bool]]:
        closing = Event()
        # Taken before the first pass reads the inventory, so that no change falls in between.
        version, _ = self._inventory.snapshot()
        threads = (
            Thread(target=self._watch.run, args=(closing,), name="slice-watch"),
            Thread(target=self._follow_inventory, args=(closing, version), name="slice-inventory"),
        )
        for thread in threads:
            thread.start()
        try:
            yield lambda: all(thread.is_alive() for thread in threads)
        finally:
            closing.set()
            self._watch.close()
            for thread in reversed(threads):
                thread.join()

    def _follow_inventory(self, closing: Event, version: int) -> None:
        while not closing.is_set():
            newest, _ = self._inventory.wait_newer(version, _TICK_S)
            if newest > version:
                version = newest
                self._alarm.ask(0.0)
            elif self._inventory.closed:
                closing.wait()

    def _pass(self, stop: Event) -> None:
        inventory = self._inventory.get()
        if inventory is None:
            problem = "the GPUs have not been read yet"
            self.state.set(replace(self.state.get(), problem=problem))
            return
        healing = self._stale.is_set()
        self._stale.clear()
        now_s = self._clock.monotonic_s()
        listed_long_ago = now_s - self._progress.listed_at_s >= self._timing.relist_s
        if listed_long_ago:
            self._capabilities.doubt()
        believed = None if healing or listed_long_ago else self._progress.published
        try:
            published = self._sync.run(inventory, believed=believed, stop=stop)
        except Stopped:
            return
        except AdapterError as error:
            self._stale.set()
            self._failed(error)
        else:
            self._succeeded(published, now_s, healing=healing)

    def _succeeded(self, published: Published, now_s: float, *, healing: bool) -> None:
        progress = self._progress
        if published.writes and healing:
            self._fights.count()
        if published is not progress.published:
            progress.listed_at_s = now_s
        progress.published = replace(published, writes=0)
        if progress.failing:
            _LOG.info("Publishing works again")
        progress.failing = False
        progress.told.clear()
        self._backoff.reset()
        self._refusals.reset()
        pool = published.pool
        self._recorder.gauge("published_devices", len(pool.devices))
        if pool != self.state.get().pool:
            _LOG.info("Published the pool", devices=len(pool.devices), notes=list(pool.notes))
        self.state.set(PublishState(pool=pool, capability=published.capability, problem=""))
        self._alarm.ask(self._timing.recheck_s)

    def _failed(self, error: AdapterError) -> None:
        refused = error.permanent and not isinstance(error, NotFound)
        pause_s = (self._refusals if refused else self._backoff).next_s()
        self._recorder.count("publish_failures_total", kind=_kind(error))
        if refused:
            # A new inventory may be what cures it, so that is tried, but never in a hurry.
            self._alarm.hold(min(1.0, pause_s))
            self._alarm.ask(pause_s)
        else:
            self._alarm.hold(pause_s)
            self._alarm.ask(pause_s)
        self.state.set(replace(self.state.get(), problem=str(error)))
        self._progress.failing = True
        told = self._progress.told
        if str(error) not in told and len(told) < _TEXTS_MAX:
            told.add(str(error))
            _LOG.warning("Could not publish", error=str(error), permanent=refused)

    def _changed_by_others(self) -> None:
        self._stale.set()
        self._alarm.ask(self._fights.settle_s())

    def _watch_broke(self) -> None:
        self._capabilities.doubt()
        self._stale.set()
        self._alarm.ask(0.0)

    def _new_watch(self, slices: SliceApi) -> SliceWatch:
        return SliceWatch(
            slices,
            on_change=self._changed_by_others,
            on_broken=self._watch_broke,
            clock=self._clock,
            backoff=self._new_backoff(),
            watch_s=self._timing.watch_s,
        )

    def _new_backoff(self) -> Backoff:
        return Backoff(first_s=self._timing.retry_first_s, cap_s=self._timing.retry_cap_s)


def _kind(error: AdapterError) -> str:
    match error:
        case FieldsDropped():
            return "dropped"
        case Conflict() | NotFound():
            return "conflict"
        case _:
            return "refused" if error.permanent else "transient"
