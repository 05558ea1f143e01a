"""The journal as one boot sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dra_driver.errors import NotReady, Reason
from dra_driver.model.claim import ClaimRef
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import Record, RecordState
from dra_driver.model.steps import needs_intent
from dra_driver.plan.overlap import Conflict, conflict
from dra_driver.ports import Journal, JournalTransaction


class Ledger:
    """Reads and changes of records, each in a transaction of its own.

    All raise AdapterError where the journal cannot be read or written.
    """

    def __init__(self, journal: Journal, boot_id: str) -> None:
        self._journal = journal
        self._boot_id = boot_id

    def all(self) -> tuple[Record, ...]:
        """Records of all boots, by claim UID."""
        with self._journal.transaction() as journal:
            return tuple(record for _, record in sorted(journal.records().items()))

    def find(self, ref: ClaimRef) -> Record | None:
        """The record of a claim, of whatever boot.

        Raises:
            NotReady: there is one that must not be touched.
        """
        with self._journal.transaction() as journal:
            newer = journal.newer().get(ref.uid)
            if newer is not None:
                raise NotReady(Reason.STATE_UNAVAILABLE, f"claim {ref}: {newer.text}")
            return journal.records().get(ref.uid)

    def holds(self, record: Record) -> bool:
        """Whether the effects of a record are of this boot, and so still there."""
        return record.boot_id == self._boot_id

    def current(self) -> Mapping[str, Record]:
        """Records of this boot by claim UID."""
        with self._journal.transaction() as journal:
            records = journal.records()
        return {uid: record for uid, record in records.items() if self.holds(record)}

    def holders(self) -> Mapping[str, Record]:
        """What is held in this boot, by claim UID: `current`, and what newer releases left.

        Raises:
            NotReady: a newer release left what cannot be understood, so nobody can tell.
        """
        with self._journal.transaction() as journal:
            return self._holders(journal)

    def beside(self, record: Record) -> Mapping[str, Record]:
        """Give `holders` but `record`."""
        return {uid: other for uid, other in self.holders().items() if uid != record.claim.uid}

    def untouchable(self) -> frozenset[str]:
        """UIDs of claims whose records newer releases wrote."""
        with self._journal.transaction() as journal:
            return frozenset(journal.newer())

    def conflict(self, plan: PreparePlan) -> Conflict | None:
        with self._journal.transaction() as journal:
            return self._conflict(plan, journal)

    def reserve(self, plan: PreparePlan) -> Conflict | None:
        """Enter the plan's record unless it conflicts, checked and done as one.

        A record without an intent is entered by `commit` alone: its GPUs' locks, held from here to
        there, keep others from reserving between.
        """
        with self._journal.transaction() as journal:
            found = self._conflict(plan, journal)
            if found is None and is_journalled(plan.record):
                journal.put(plan.record)
            return found

    def commit(self, record: Record) -> None:
        """Enter a record as PREPARED."""
        with self._journal.transaction() as journal:
            journal.put(replace(record, state=RecordState.PREPARED))

    def delete(self, record: Record) -> None:
        """Take a record out; one that is not there is success."""
        with self._journal.transaction() as journal:
            if record.claim.uid in journal.records():
                journal.delete(record.claim.uid)

    def _conflict(self, plan: PreparePlan, journal: JournalTransaction) -> Conflict | None:
        holders = self._holders(journal)
        return conflict(plan.record, holders, self._boot_id, usable_mib=plan.usable_mib)

    def _holders(self, journal: JournalTransaction) -> Mapping[str, Record]:
        records = dict(journal.records())
        for uid, newer in journal.newer().items():
            if newer.held is None:
                raise NotReady(Reason.STATE_UNAVAILABLE, newer.text)
            records[uid] = newer.held
        return {uid: record for uid, record in records.items() if self.holds(record)}


def is_journalled(record: Record) -> bool:
    """Whether a record is in the journal before its steps run."""
    return any(needs_intent(step) for step in record.steps)
