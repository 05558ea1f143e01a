"""One change of the journal's files, as who makes it sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dra_driver.adapters.durable import Staged
from dra_driver.adapters.lock_file import OpenFile
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import NewerRecord, Record, RecordState
from dra_driver.state import codec

if TYPE_CHECKING:
    from dra_driver.adapters.record_file import RecordFiles

ENDING = ".json"


class RecordTransaction:
    """Attributes: unsynced: the folder has to be synced for what was changed to last."""

    def __init__(
        self, files: RecordFiles, locked: OpenFile, intended: Record | None, staged: Staged | None
    ) -> None:
        self._files = files
        self._locked = locked
        self._intended = intended
        self._staged = staged
        self.unsynced = False

    def records(self) -> Mapping[str, Record]:
        return self._files.records()

    def find(self, uid: str) -> Record | None:
        return self._files.find(uid)

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        return self._files.on(gpus, pods=pods)

    def newer(self) -> Mapping[str, NewerRecord]:
        return self._files.newer()

    def put(self, record: Record) -> None:
        self.unsynced |= record is not self._intended or not is_intent(record)
        staged, self._staged = (self._staged if record is self._intended else None), None
        self._files.put(self._locked, record, staged)

    def delete(self, uid: str) -> None:
        self.unsynced = True
        self._files.delete(self._locked, uid)


def file_of(record: Record) -> tuple[str, bytes]:
    return f"{record.claim.uid}{ENDING}", codec.encode(record).encode()


def is_intent(record: Record) -> bool:
    """Whether a record need not outlive its boot: effects that do are found by their names."""
    return record.state is RecordState.RESERVED
