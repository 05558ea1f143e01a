"""At start, before the node is ready: the world agrees with the journal again.

The kubelet does not prepare running pods again when the driver comes back, so the journal alone has
to do. Another plugin process may be at work beside this one (a rolling update): what it holds the
lock of is its own to finish, so locks are waited for only briefly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from dra_driver import log
from dra_driver.errors import AdapterError, ClaimError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Record, RecordState
from dra_driver.model.steps import EnsureShare
from dra_driver.plan.prepare import plan_unprepare
from dra_driver.ports import Clock, Locks, Recorder
from dra_driver.state.executor import Executor
from dra_driver.state.ledger import Ledger

_log = log.get(__name__)

_LOCK_WAIT_S = 1.0
_SHARES_S = 2.0
"""For all that a start asks of the supervisor of shares: without it, whole GPUs can be served, and
when it comes it is asked again."""

Work = Callable[[Deadline], None]


class Recovery:
    """Settles every claim, every GPU and every CDI spec, each for itself."""

    def __init__(
        self, *, ledger: Ledger, locks: Locks, executor: Executor, clock: Clock, recorder: Recorder
    ) -> None:
        self._ledger = ledger
        self._locks = locks
        self._executor = executor
        self._clock = clock
        self._recorder = recorder

    def run(self, deadline: Deadline, gpus: tuple[GpuUuid, ...]) -> tuple[str, ...]:
        """See `NodeState.recover`."""
        return self._each(self._work(gpus, self._by(deadline, _SHARES_S)), deadline)

    def assert_shares(self, deadline: Deadline, gpus: tuple[GpuUuid, ...]) -> tuple[str, ...]:
        """See `NodeState.assert_shares`."""
        return self._each(self._shares(gpus, deadline), deadline)

    def _each(self, works: Iterator[tuple[str, Work]], deadline: Deadline) -> tuple[str, ...]:
        problems: list[str] = []
        for what, work in works:
            try:
                work(deadline)
            except (AdapterError, ClaimError) as error:
                _log.warning("Could not restore", what=what, error=error)
                self._recorder.count("recovery_problems_total")
                problems.append(f"{what}: {error}")
        return tuple(problems)

    def _work(self, gpus: tuple[GpuUuid, ...], shares_by: Deadline) -> Iterator[tuple[str, Work]]:
        for record in self._ledger.current().values():
            yield (
                f"claim {record.claim}",
                partial(self._settle_claim, record.claim, shares_by=shares_by),
            )
        yield from self._shares(gpus, shares_by)
        yield "left-over CDI specs", self._remove_orphans
        yield "CDI specs", lambda _: self._executor.settle()

    def _shares(self, gpus: tuple[GpuUuid, ...], shares_by: Deadline) -> Iterator[tuple[str, Work]]:
        records = self._ledger.current().values()
        shared = {gpu for record in records for gpu in _gpus_with_shares(record)}
        for gpu in sorted(shared.union(gpus)):
            yield f"shares of GPU {gpu}", partial(self._settle_gpu, gpu, shares_by=shares_by)

    def _settle_claim(self, ref: ClaimRef, deadline: Deadline, *, shares_by: Deadline) -> None:
        with self._locks.claim(ref.uid, self._soon(deadline)):
            record = self._ledger.find(ref)
            if record is None or not self._ledger.holds(record):
                return
            if record.state is RecordState.PREPARED:
                self._executor.restore_specs(record)
                return
            # Its prepare died; the retry plans anew, and without one nothing must be left.
            with self._locks.gpus(record.gpus, self._soon(deadline)):
                others = self._ledger.beside(record)
                steps = plan_unprepare(record, others)
                self._executor.undo(record, steps, others, shares_by)
                self._ledger.delete(record)

    def _settle_gpu(self, gpu: GpuUuid, deadline: Deadline, *, shares_by: Deadline) -> None:
        with self._locks.gpus((gpu,), self._soon(deadline)):
            self._executor.restore_shares(gpu, self._ledger.holders((gpu,)), shares_by)

    def _remove_orphans(self, deadline: Deadline) -> None:
        kept = self._ledger.current().keys() | self._ledger.untouchable()
        for uid in self._executor.claims_with_spec():
            if uid not in kept:
                self._remove_orphan(uid, deadline)

    def _remove_orphan(self, uid: str, deadline: Deadline) -> None:
        with self._locks.claim(uid, self._soon(deadline)):
            if uid not in self._ledger.current():
                self._executor.remove_spec(uid)

    def _soon(self, deadline: Deadline) -> Deadline:
        return self._by(deadline, _LOCK_WAIT_S)

    def _by(self, deadline: Deadline, seconds: float) -> Deadline:
        return Deadline(min(deadline.at_s, self._clock.monotonic_s() + seconds))


def _gpus_with_shares(record: Record) -> frozenset[GpuUuid]:
    return frozenset(step.share.gpu for step in record.steps if isinstance(step, EnsureShare))
