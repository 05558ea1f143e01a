"""A Journal in memory; it keeps bytes, so that mistakes of the stored form show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock

from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import NewerRecord, Record
from dra_driver.state import codec


class FakeJournal:
    """`broken`: an error that every put and delete raises while it is set."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.entries: dict[str, bytes] = {}
        self.log: list[str] = []
        self.broken: AdapterError | None = None

    @contextmanager
    def view(self) -> Iterator[FakeTransaction]:
        with self._lock:
            yield FakeTransaction(self)

    def staged(self, record: Record) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def transaction(self) -> Iterator[FakeTransaction]:
        with self._lock:
            yield FakeTransaction(self)


class FakeTransaction:
    def __init__(self, journal: FakeJournal) -> None:
        self._journal = journal

    def records(self) -> Mapping[str, Record]:
        decoded = {uid: codec.decode(content) for uid, content in self._journal.entries.items()}
        return {uid: each for uid, each in decoded.items() if isinstance(each, Record)}

    def find(self, uid: str) -> Record | None:
        return self.records().get(uid)

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        wanted = {*gpus, *pods}
        return {
            uid: each
            for uid, each in self.records().items()
            if wanted & {*each.gpus, *(pod.uid for pod in each.pods)}
        }

    def newer(self) -> Mapping[str, NewerRecord]:
        decoded = {uid: codec.decode(content) for uid, content in self._journal.entries.items()}
        return {
            uid: NewerRecord(
                text=f"written by a newer gpuslice ({each.what}): upgrade or roll back",
                held=each.held,
            )
            for uid, each in decoded.items()
            if isinstance(each, codec.FromTheFuture)
        }

    def put(self, record: Record) -> None:
        self._check(record.claim.uid)
        self._journal.entries[record.claim.uid] = codec.encode(record).encode()
        self._journal.log.append(f"put {record.state.value}")

    def delete(self, uid: str) -> None:
        self._check(uid)
        self._journal.entries.pop(uid, None)
        self._journal.log.append("delete")

    def _check(self, uid: str) -> None:
        if self._journal.broken is not None:
            raise self._journal.broken
        if uid in self.newer():
            raise AdapterError(self.newer()[uid].text)
