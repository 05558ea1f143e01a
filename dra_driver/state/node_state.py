"""What the node holds for claims: the state machine.

        (none) ──prepare: reserve──▶ RESERVED ──all steps ran──▶ PREPARED ──prepare──▶ the same
          ▲                            │                            │
          └────── steps undone ◀───────┴───── unprepare, crash ◀────┘

A record is in the journal before the first effect that would be forgotten otherwise, and until the
last one is undone. Undoing begins with the CDI spec, so a PREPARED record whose spec stands is
whole, and one whose spec is missing has all its steps run again.

Locks are taken in the order claim, GPUs, journal. Whoever waits for another claim holds no GPU, or
the unprepare that it waits for would queue behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition
from typing import Any

from dra_driver import log
from dra_driver.errors import AdapterError, ClaimError, ClaimRejected, NotFound, NotReady, Reason
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import PreparedDevice, Record, RecordState
from dra_driver.plan.claims import is_allocated_otherwise
from dra_driver.plan.containers import has_mps_share
from dra_driver.plan.overlap import Conflict
from dra_driver.plan.prepare import plan_unprepare
from dra_driver.ports import (
    ClaimReader,
    Clock,
    EventSink,
    Journal,
    Json,
    Locks,
    PodReader,
    Recorder,
)
from dra_driver.state.containers import ContainerCheck
from dra_driver.state.executor import Executor
from dra_driver.state.ledger import Ledger, Reserved, is_journalled
from dra_driver.state.recovery import Recovery

_log = log.get(__name__)

OVERLAP_WAIT_S = 5.0
"""After a force deletion the old unprepare was seen 2.2 to 2.5 s behind the new prepare."""

_READ_S = 20.0
"""An API server that is away for longer costs a retry: who waits for it takes others' room."""

_POLL_S = 0.1
_UNDO_S = 2.0
"""What undoing gets when the call's own time is over: part of the margin before the kubelet's."""


class NodeState:
    """Prepares and unprepares claims; safe for many threads and several processes.

    Args:
        driver: whose devices a claim's allocation is searched for.
        plan: decides about a claim as the API server gave it; reads inventory and settings.
        boot_id: of this boot; effects of another boot are gone.
    """

    def __init__(
        self,
        *,
        driver: str,
        claims: ClaimReader,
        pods: PodReader,
        journal: Journal,
        locks: Locks,
        executor: Executor,
        plan: Callable[[Json, ClaimRef], PreparePlan],
        boot_id: str,
        clock: Clock,
        events: EventSink,
        recorder: Recorder,
    ) -> None:
        self._driver = driver
        self._claims = claims
        self._ledger = Ledger(journal, boot_id)
        self._locks = locks
        self._executor = executor
        self._containers = ContainerCheck(pods, clock)
        self._plan = plan
        self._recovery = Recovery(
            ledger=self._ledger, locks=locks, executor=executor, clock=clock, recorder=recorder
        )
        self._clock = clock
        self._events = events
        self._recorder = recorder
        self._released = Condition()

    def prepare(self, ref: ClaimRef, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        """Make a claim's devices usable; a repeat answers the same, without planning again.

        A claim that was allocated anew loses what it had: its earlier pods are gone.

        Raises:
            ClaimRejected: the claim has to change.
            NotReady: not now; what was begun is resumed by the retry.
        """
        body = self._read_claim(ref, deadline)
        warnings: tuple[str, ...] = ()
        with _told(ref, "prepare"), self._locks.claim(ref.uid, deadline):
            record = self._kept(ref, body, deadline)
            if record is not None:
                devices = self._again(record, deadline)
            else:
                plan = self._plan(body, ref)
                devices = self._first(plan, deadline) if plan.record.steps else plan.record.devices
                warnings = plan.warnings
            # After the record, whose own sync has mostly taken the specs along.
            self._executor.settle()
        for text in warnings:
            self._events.emit(ref, reason="PreparedWithWarning", text=text)
        return devices

    def unprepare(self, ref: ClaimRef, deadline: Deadline) -> None:
        """Undo `prepare` from the journal alone; a claim that is not known is success.

        Raises:
            NotReady: it could not be undone; the record stays, and the claim's Events say why.
        """
        try:
            with _told(ref, "unprepare"), self._locks.claim(ref.uid, deadline):
                record = self._ledger.find(ref)
                if record is not None and self._ledger.holds(record):
                    with self._locks.gpus(record.gpus, deadline):
                        self._undo(record, self._ledger.beside(record), deadline)
                else:
                    self._executor.remove_spec(ref.uid)
                    if record is not None:
                        self._ledger.delete(record)
                self._executor.settle()
        except ClaimError as error:
            # The kubelet writes no Event about a failed unprepare, it only tries for ever.
            self._events.emit(ref, reason="FailedUnprepare", text=str(error))
            raise
        finally:
            with self._released:
                self._released.notify_all()

    def recover(self, deadline: Deadline, *, gpus: tuple[GpuUuid, ...] = ()) -> tuple[str, ...]:
        """Make the world agree with the journal; once, at start, before calls are answered.

        Args:
            deadline: of the whole; what it cuts off is among the answer.
            gpus: of the node; shares are taken off those that no record speaks of.

        Returns:
            What could not be done, one sentence each; preparing and unpreparing tries again.

        Raises:
            AdapterError: the journal cannot be read.
        """
        return self._recovery.run(deadline, gpus)

    def assert_shares(
        self, deadline: Deadline, *, gpus: tuple[GpuUuid, ...] = ()
    ) -> tuple[str, ...]:
        """Make the supervisor of shares hold what the journal says; arguments as of `recover`.

        Any time, beside calls: each GPU's lock is held while its shares are asserted.
        """
        return self._recovery.assert_shares(deadline, gpus)

    def records(self) -> tuple[Record, ...]:
        """All records, those of other boots too, by claim UID.

        Raises:
            AdapterError: the journal cannot be read.
        """
        return self._ledger.all()

    def _kept(self, ref: ClaimRef, body: Json, deadline: Deadline) -> Record | None:
        """The record that a prepare of this claim repeats."""
        record = self._ledger.find(ref)
        if record is None or not self._ledger.holds(record) or _uid(body) != ref.uid:
            return None
        if not is_allocated_otherwise(body, record, driver=self._driver):
            return record
        with self._locks.gpus(record.gpus, deadline):
            self._undo(record, self._ledger.beside(record), deadline)
        return None

    def _again(self, record: Record, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        if record.state is RecordState.PREPARED and self._executor.intact(record):
            return record.devices
        with self._locks.gpus(record.gpus, deadline):
            others = self._ledger.beside(record)
            # Who did not see this intent, such as an older release, may have taken its devices.
            reserved = record.state is RecordState.RESERVED
            if reserved and (found := self._ledger.in_the_way(record, others)) is not None:
                raise NotReady(Reason.DEVICE_IN_USE, found.text)
            return self._carry_out(record, others, deadline)

    def _first(self, plan: PreparePlan, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        give_up_s = min(deadline.at_s, self._clock.monotonic_s() + OVERLAP_WAIT_S)
        while True:
            with self._locks.gpus(plan.record.gpus, deadline):
                found = self._ledger.reserve(plan)
                if isinstance(found, Reserved):
                    return self._carry_out(plan.record, found.others, deadline)
            self._wait_until_free(plan, found, give_up_s)

    def _wait_until_free(self, plan: PreparePlan, found: Conflict | None, give_up_s: float) -> None:
        while found is not None:
            left_s = give_up_s - self._clock.monotonic_s()
            if not found.may_pass or left_s <= 0:
                self._recorder.count("overlaps_total", outcome="refused")
                kind = NotReady if found.may_pass else ClaimRejected
                raise kind(Reason.DEVICE_IN_USE, found.text)
            with self._released:
                # Another process's unprepare wakes nobody here, so look at the journal anyway.
                self._released.wait(min(left_s, _POLL_S))
            found = self._ledger.conflict(plan)
        self._recorder.count("overlaps_total", outcome="passed")

    def _carry_out(
        self, record: Record, others: Mapping[str, Record], deadline: Deadline
    ) -> tuple[PreparedDevice, ...]:
        try:
            if record.state is RecordState.RESERVED:
                # Others need no look at the journal either.
                if has_mps_share(record):
                    self._containers.check(record, self._ledger.of_pods(record), deadline)
                self._become_prepared(record, others, deadline)
            else:
                self._executor.run(record, others, deadline)
        except (AdapterError, ClaimError) as error:
            resumes = isinstance(error, NotReady) and is_journalled(record)
            # Containers may run on what is PREPARED: it is never taken back for a failed repeat.
            if record.state is RecordState.RESERVED and not resumes:
                self._roll_back(record, others, deadline)
            raise
        return record.devices

    def _become_prepared(
        self, record: Record, others: Mapping[str, Record], deadline: Deadline
    ) -> None:
        with (
            self._executor.begun(record, others, deadline) as finish,
            # Written out while shares are enforced, entered once they are.
            self._ledger.committing(record) as commit,
        ):
            finish()
            commit()

    def _roll_back(self, record: Record, others: Mapping[str, Record], deadline: Deadline) -> None:
        grace = Deadline(max(deadline.at_s, self._clock.monotonic_s() + _UNDO_S))
        try:
            self._undo(record, others, grace)
        except (AdapterError, ClaimError) as error:
            # The first failure is what the user is told; the record stays for unprepare or restart.
            _log.warning("Could not undo a failed prepare", claim=str(record.claim), error=error)

    def _undo(self, record: Record, others: Mapping[str, Record], deadline: Deadline) -> None:
        self._executor.undo(record, plan_unprepare(record, others), others, deadline)
        self._ledger.delete(record)

    def _read_claim(self, ref: ClaimRef, deadline: Deadline) -> Json:
        # Before the claim's lock: an unprepare must not wait for an API server that is away.
        patience = Deadline(min(deadline.at_s, self._clock.monotonic_s() + _READ_S))
        try:
            return self._claims.get_claim(ref.namespace, ref.name, patience)
        except NotFound as error:
            raise ClaimRejected(
                Reason.CLAIM_NOT_FOUND,
                f"claim {ref} does not exist any more: delete the pod that uses it",
            ) from error
        except AdapterError as error:
            text = f"cannot read claim {ref} from the API server: {error}"
            raise NotReady(Reason.API_UNAVAILABLE, text) from error


def _uid(body: Json) -> Any:
    metadata = body.get("metadata")
    return metadata.get("uid") if isinstance(metadata, Mapping) else None


@contextmanager
def _told(ref: ClaimRef, verb: str) -> Iterator[None]:
    """Say of which claim a third party's failure keeps us, in the words of the taxonomy."""
    try:
        yield
    except AdapterError as error:
        kind = ClaimRejected if error.permanent else NotReady
        raise kind(Reason.STEP_FAILED, f"cannot {verb} claim {ref}: {error}") from error
