"""Ends leases, rolls back, and verifies what was restored: whatever is pending, for ever."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from dra_driver import log
from dra_driver.checkpoint.engine import Engine
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Operation, OperationState
from dra_driver.plan.broken_state import left_broken, processes_left_broken
from dra_driver.plan.operation_values import Aborted, Rebooted, RunnerEnded, Tick
from dra_driver.plan.operations import can_abort

_WORKERS = 8
"""An operation whose processes hang must not hold up the others."""
_IDLE_S = 5.0
_BUSY_S = 0.5
_LOCK_S = 0.1
_YIELD_S = 0.01
"""So long a kick waits, for the call that gave it to be answered first."""
_PRUNE_S = 600.0

_log = log.get(__name__)


class Keeper:
    """Looks at all operations that are under way, several times a second while there are any.

    Args:
        engine: the operations; their table is loaded.
        interval_s: between two looks.
    """

    def __init__(self, engine: Engine, *, interval_s: float = _BUSY_S) -> None:
        self._engine = engine
        self._interval_s = interval_s
        self._kicked = Event()
        self._working: dict[str, Future[None]] = {}
        self._problems: dict[str, str] = {}

    def kick(self) -> None:
        """Look at once; from any thread."""
        self._kicked.set()

    def run(self, stop: Event) -> None:
        """Keep until `stop`."""
        clock = self._engine.world.clock
        prune_s = clock.monotonic_s()
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="hook-keeper") as workers:
            while not stop.is_set():
                self._kicked.clear()
                open_now = self._engine.table.under_way()
                for operation in open_now:
                    self._start(workers, operation.id)
                if clock.monotonic_s() >= prune_s:
                    prune_s = clock.monotonic_s() + _PRUNE_S
                    self._pruned()
                self._wait(stop, busy=bool(open_now))

    def prune(self) -> None:
        """Forget what ended long ago, but nothing that still tells of a GPU's health.

        Raises AdapterError.
        """
        engine = self._engine
        operations = engine.table.all()
        left = processes_left_broken(operations)
        ended = frozenset(each for each in left if not engine.world.alive(each))
        broken = left_broken(operations, engine.world.records(), ended=ended)
        engine.table.prune(engine.world.clock.wall_s(), spared={each.id for each in broken})

    def tend(self, operation_id: str) -> None:
        """Move one operation on as far as it goes now."""
        engine = self._engine
        with engine.locks.held(operation_id, _LOCK_S) as got:
            operation = engine.table.get(operation_id)
            if not got or operation is None or operation.state.final:
                return
            try:
                self._tend(operation)
            except AdapterError as error:
                self._tell(operation_id, str(error))
            else:
                self._problems.pop(operation_id, None)

    def _tend(self, operation: Operation) -> None:
        engine, runner = self._engine, operation.runner
        if operation.boot_id != engine.world.boot_id:
            engine.advance(operation, Rebooted())
            return
        gone = self._unprepared(operation)
        if gone:
            engine.advance(operation, Aborted(text=f"claim {gone} was unprepared meanwhile"))
            return
        at_work = runner is not None and engine.world.alive(runner)
        if operation.state is OperationState.DELEGATED and runner is not None and not at_work:
            engine.advance(operation, RunnerEnded())
            return
        if not at_work:
            # Before, it would disturb a runtime that is writing, and there is no archive yet.
            engine.table.settle(operation)
        engine.advance(operation, Tick())

    def _unprepared(self, operation: Operation) -> str:
        """The claim that the kubelet took back while the operation waits; empty: none."""
        if not can_abort(operation):
            return ""
        held = {record.claim.uid for record in self._engine.world.records()}
        return next((str(claim) for claim in operation.claims if claim.uid not in held), "")

    def _start(self, workers: ThreadPoolExecutor, operation_id: str) -> None:
        working = self._working.get(operation_id)
        if working is not None:
            if not working.done():
                return
            del self._working[operation_id]
            working.result()  # what nobody foresaw ends the keeper, and with it the process
        self._working[operation_id] = workers.submit(self.tend, operation_id)

    def _wait(self, stop: Event, *, busy: bool) -> None:
        # A stop is seen within one interval, a kick at once.
        left_s = self._interval_s if busy else max(self._interval_s, _IDLE_S)
        while left_s > 0 and not stop.is_set():
            if self._kicked.wait(self._interval_s):
                stop.wait(_YIELD_S)
                return
            left_s -= self._interval_s

    def _pruned(self) -> None:
        try:
            self.prune()
        except AdapterError as error:
            self._tell("", str(error))

    def _tell(self, key: str, text: str) -> None:
        """Log a problem once until it changes."""
        if self._problems.get(key) != text:
            self._problems[key] = text
            _log.warning("An operation of the hook does not go on", operation=key, error=text)
