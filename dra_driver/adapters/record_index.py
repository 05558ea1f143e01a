"""What is known of the journal's entries, as long as nobody changes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dra_driver.model.device import GpuUuid
from dra_driver.model.record import NewerRecord, Record

Identity = tuple[int, int, int, int]
"""File system, inode, modification time and size: every write makes a new file."""


class RecordIndex:
    """A JournalView in memory; not thread-safe."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._by_key: dict[str, dict[str, Record]] = {}
        self._newer: dict[str, NewerRecord] = {}
        self._identities: dict[str, Identity] = {}

    def find(self, uid: str) -> Record | None:
        return self._records.get(uid)

    def records(self) -> Mapping[str, Record]:
        return dict(self._records)

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        keys = (*gpus, *pods)
        return {uid: each for key in keys for uid, each in self._by_key.get(key, {}).items()}

    def newer(self) -> Mapping[str, NewerRecord]:
        return dict(self._newer)

    def known(self) -> frozenset[str]:
        """UIDs of all entries."""
        return frozenset(self._identities)

    def is_known(self, uid: str, identity: Identity) -> bool:
        return self._identities.get(uid) == identity

    def put(self, record: Record, identity: Identity) -> None:
        uid = record.claim.uid
        self.forget(uid)
        self._records[uid] = record
        for key in _keys(record):
            self._by_key.setdefault(key, {})[uid] = record
        # Last: an entry whose identity is known is never read again.
        self._identities[uid] = identity

    def put_newer(self, uid: str, newer: NewerRecord, identity: Identity) -> None:
        self.forget(uid)
        self._newer[uid] = newer
        self._identities[uid] = identity

    def newer_at(self, uid: str) -> NewerRecord | None:
        return self._newer.get(uid)

    def forget(self, uid: str) -> None:
        self._identities.pop(uid, None)
        self._newer.pop(uid, None)
        record = self._records.pop(uid, None)
        for key in _keys(record) if record is not None else ():
            self._by_key[key].pop(uid, None)
            if not self._by_key[key]:
                del self._by_key[key]


def _keys(record: Record) -> set[str]:
    return {*record.gpus, *(pod.uid for pod in record.pods)}
