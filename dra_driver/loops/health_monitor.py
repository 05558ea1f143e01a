"""Keeps the inventory and the health of the node's GPUs current."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from dra_driver import log
from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.loops.backoff import Backoff
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.health import DeviceHealth, GpuEvent, HealthStatus
from dra_driver.plan.health import XidPolicy, fold, merge, without_driver
from dra_driver.ports import Clock, GpuLibrary, Recorder
from dra_driver.state.current import Current

_BACKOFF_FIRST_S = 0.5
_BACKOFF_LAST_S = 10.0
_SHORT_PAUSE_S = 0.1
"""Before the library is asked again after an early return, so that a bad one cannot spin us."""
_WHOLE_WAIT = 0.9
"""A wait that took less than this part of its time returned early: something changed."""

_log = log.get(__name__)


class HealthMonitor:
    """Reads the GPUs and waits for their events, on one thread, for ever.

    Unknown is not unhealthy: events that cannot be waited for are logged and counted, and change
    nothing. A driver that goes away makes all known GPUs unhealthy; none is dropped.

    Args:
        gpus: the library to follow.
        target: gets each new inventory; stays as it is until the first read succeeds.
        problem: why there is no current inventory, for readiness; empty while all is well.
        policy: which XIDs count.
        held: GPUs that claims hold now; None: GPUs that vanish are kept until the process ends.
        interval_s: the inventory is read anew at least this often.
        wait_s: longest single wait for events, hence how soon a stop is seen.
    """

    def __init__(
        self,
        gpus: GpuLibrary,
        target: Current[Inventory | None],
        *,
        problem: Current[str],
        clock: Clock,
        recorder: Recorder,
        policy: XidPolicy,
        held: Callable[[], frozenset[GpuUuid]] | None = None,
        interval_s: float = 30.0,
        wait_s: float = 1.0,
    ) -> None:
        self._gpus = gpus
        self._target = target
        self._problem = problem
        self._clock = clock
        self._recorder = recorder
        self._policy = policy
        self._held = held
        self._interval_s = interval_s
        self._wait_s = wait_s
        # Nobody else asks this node's GPUs, so there is nobody to keep out of step with.
        self._backoff = Backoff(first_s=_BACKOFF_FIRST_S, cap_s=_BACKOFF_LAST_S, spread=lambda: 0.0)
        self._early: tuple[GpuEvent, ...] = ()  # came before there was an inventory

    def run(self, stop: Event) -> None:
        while not stop.is_set():
            if not (self._read() and self._watch(stop)):
                self._pause(stop)

    def _read(self) -> bool:
        """Read the inventory; False where it cannot be had now."""
        known = self._target.get()
        try:
            read = self._gpus.inventory()
        except AdapterError as error:
            self._recorder.count("gpu_read_failures_total")
            self._tell(str(error))
            if known is not None and isinstance(error, DriverNotLoaded):
                self._set(without_driver(known, str(error)))
            return False
        self._tell("")
        merged = merge(known, read, held=self._held() if self._held is not None else None)
        self._set(fold(merged, self._early, self._policy))
        self._early = ()
        return True

    def _watch(self, stop: Event) -> bool:
        """Wait until the inventory has to be read again; False where events cannot be had now."""
        end_s = self._clock.monotonic_s() + self._interval_s
        while not stop.is_set():
            start_s = self._clock.monotonic_s()
            wait_s = min(self._wait_s, end_s - start_s)
            if wait_s <= 0:
                break
            try:
                events = self._gpus.wait_events(wait_s)
            except AdapterError as error:
                self._recorder.count("gpu_event_failures_total")
                _log.warning("Cannot wait for GPU events", error=str(error))
                return False
            self._backoff.reset()
            if events and self._note(events):
                break  # a GPU that fails may be lost
            if not events and self._clock.monotonic_s() - start_s < wait_s * _WHOLE_WAIT:
                stop.wait(_SHORT_PAUSE_S)
                break
        return True

    def _pause(self, stop: Event) -> None:
        """Wait before the next try, longer each time, but not once the library sees a change."""
        end_s = self._clock.monotonic_s() + self._backoff.next_s()
        while not stop.is_set():
            left_s = end_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            start_s, wait_s = self._clock.monotonic_s(), min(self._wait_s, left_s)
            try:
                events = self._gpus.wait_events(wait_s)
            except AdapterError:
                stop.wait(left_s)
                return
            self._note(events)
            if self._clock.monotonic_s() - start_s < wait_s * _WHOLE_WAIT:
                stop.wait(_SHORT_PAUSE_S)
                return

    def _note(self, events: tuple[GpuEvent, ...]) -> bool:
        """Take events into the inventory; True where they changed it."""
        known = self._target.get()
        for event in events:
            self._recorder.count("gpu_xid_total", xid=str(event.xid))
            _log.warning(
                "The GPU driver reported an XID",
                gpu=event.uuid or "unknown",
                xid=event.xid,
                ignored=event.xid in self._policy.ignored,
            )
        if known is None:
            self._early += events
            return False
        folded = fold(known, events, self._policy)
        self._set(folded)
        return folded != known

    def _set(self, inventory: Inventory) -> None:
        known = self._target.get()
        before = {each.uuid: each for each in known.health} if known is not None else {}
        for health in inventory.health:
            if health != before.get(health.uuid):
                level = _log.warning if health.status is HealthStatus.UNHEALTHY else _log.info
                level("A GPU's health changed", gpu=health.uuid, **_spoken(health))
        for status in HealthStatus:
            count = sum(each.status is status for each in inventory.health)
            self._recorder.gauge("gpus", count, health=status.value)
        self._target.set(inventory)

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem.get():
            _log.error("Cannot read the GPUs; trying again", error=problem)
        self._problem.set(problem)


def _spoken(health: DeviceHealth) -> dict[str, str]:
    return {"status": health.status.value, "cause": health.cause, "message": health.message}
