"""The journal as one boot sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from dra_driver.errors import NotReady, Reason
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import Record, RecordState
from dra_driver.model.steps import needs_intent
from dra_driver.plan.overlap import Conflict, conflict
from dra_driver.ports import Journal, JournalView


@dataclass(frozen=True, slots=True)
class Reserved:
    """Nothing is in the way of a record; `others` is what `Ledger.beside` gives for it."""

    others: Mapping[str, Record]


class Ledger:
    """Reads and changes of records, each in a transaction of its own.

    All raise AdapterError where the journal cannot be read or written.
    """

    def __init__(self, journal: Journal, boot_id: str) -> None:
        self._journal = journal
        self._boot_id = boot_id

    def all(self) -> tuple[Record, ...]:
        """Records of all boots, by claim UID."""
        with self._journal.view() as journal:
            return tuple(record for _, record in sorted(journal.records().items()))

    def find(self, ref: ClaimRef) -> Record | None:
        """The record of a claim, of whatever boot.

        Raises:
            NotReady: there is one that must not be touched.
        """
        with self._journal.view() as journal:
            newer = journal.newer().get(ref.uid)
            if newer is not None:
                raise NotReady(Reason.STATE_UNAVAILABLE, f"claim {ref}: {newer.text}")
            return journal.find(ref.uid)

    def holds(self, record: Record) -> bool:
        """Whether the effects of a record are of this boot, and so still there."""
        return record.boot_id == self._boot_id

    def current(self) -> Mapping[str, Record]:
        """Records of this boot by claim UID."""
        with self._journal.view() as journal:
            records = journal.records()
        return {uid: record for uid, record in records.items() if self.holds(record)}

    def holders(self, gpus: Iterable[GpuUuid]) -> Mapping[str, Record]:
        """What is held of `gpus` in this boot, by claim UID, newer releases' records included.

        Raises:
            NotReady: a newer release left what cannot be understood, so nobody can tell.
        """
        with self._journal.view() as journal:
            return self._holders(gpus, journal)

    def beside(self, record: Record) -> Mapping[str, Record]:
        """Give `holders` of the record's GPUs but `record`."""
        with self._journal.view() as journal:
            return self._beside(record, journal)

    def of_pods(self, record: Record) -> Mapping[str, Record]:
        """Give other records of this boot that share a pod with `record`, by claim UID.

        Those of newer releases are not judged.
        """
        with self._journal.view() as journal:
            records = journal.on(pods=[pod.uid for pod in record.pods])
        return {
            uid: other
            for uid, other in records.items()
            if uid != record.claim.uid and self.holds(other)
        }

    def untouchable(self) -> frozenset[str]:
        """UIDs of claims whose records newer releases wrote."""
        with self._journal.view() as journal:
            return frozenset(journal.newer())

    def conflict(self, plan: PreparePlan) -> Conflict | None:
        with self._journal.view() as journal:
            return self._conflict(plan, self._beside(plan.record, journal))

    def in_the_way(self, record: Record, others: Mapping[str, Record]) -> Conflict | None:
        """What keeps a record that is entered from being carried out, among what `beside` gave."""
        return conflict(record, others, self._boot_id)

    def reserve(self, plan: PreparePlan) -> Reserved | Conflict:
        """Enter the plan's record unless it conflicts, checked and done as one.

        A record without an intent is entered by `committing` alone: its GPUs' locks, held from here
        to there, keep others from reserving between.
        """
        intended = plan.record if is_journalled(plan.record) else None
        if intended is None:
            others = self.beside(plan.record)
            return self._conflict(plan, others) or Reserved(others)
        with self._journal.staged(intended), self._journal.transaction() as journal:
            others = self._beside(plan.record, journal)
            found = self._conflict(plan, others)
            if found is None:
                journal.put(intended)
        return found or Reserved(others)

    @contextmanager
    def committing(self, record: Record) -> Iterator[Callable[[], None]]:
        """Write a record out as PREPARED, and give what enters it."""
        prepared = replace(record, state=RecordState.PREPARED)
        with self._journal.staged(prepared):
            yield partial(self._enter, prepared)

    def delete(self, record: Record) -> None:
        """Take a record out; one that is not there is success."""
        with self._journal.transaction() as journal:
            if journal.find(record.claim.uid) is not None:
                journal.delete(record.claim.uid)

    def _enter(self, record: Record) -> None:
        with self._journal.transaction() as journal:
            journal.put(record)

    def _conflict(self, plan: PreparePlan, others: Mapping[str, Record]) -> Conflict | None:
        return conflict(plan.record, others, self._boot_id, usable_mib=plan.usable_mib)

    def _beside(self, record: Record, journal: JournalView) -> Mapping[str, Record]:
        holders = self._holders(record.gpus, journal)
        return {uid: other for uid, other in holders.items() if uid != record.claim.uid}

    def _holders(self, gpus: Iterable[GpuUuid], journal: JournalView) -> Mapping[str, Record]:
        wanted = frozenset(gpus)
        records = dict(journal.on(wanted))
        for uid, newer in journal.newer().items():
            if newer.held is None:
                raise NotReady(Reason.STATE_UNAVAILABLE, newer.text)
            if not wanted.isdisjoint(newer.held.gpus):
                records[uid] = newer.held
        return {uid: record for uid, record in records.items() if self.holds(record)}


def is_journalled(record: Record) -> bool:
    """Whether a record is in the journal before its steps run."""
    return any(needs_intent(step) for step in record.steps)
