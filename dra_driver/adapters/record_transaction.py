"""One change of the journal's files, as who makes it sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dra_driver.adapters.lock_file import OpenFile
from dra_driver.adapters.record_folders import outlives_boot
from dra_driver.adapters.record_index import RecordIndex
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import NewerRecord, Record

if TYPE_CHECKING:
    from dra_driver.adapters.record_file import RecordFiles


class RecordTransaction:
    """Attributes: unsynced: the folder has to be synced for what was changed to last."""

    def __init__(self, files: RecordFiles, index: RecordIndex, locked: OpenFile) -> None:
        self._files = files
        self._index = index
        self._locked = locked
        self.unsynced = False

    def records(self) -> Mapping[str, Record]:
        return self._index.records()

    def find(self, uid: str) -> Record | None:
        return self._index.find(uid)

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        return self._index.on(gpus, pods=pods)

    def newer(self) -> Mapping[str, NewerRecord]:
        return self._index.newer()

    def put(self, record: Record) -> None:
        self.unsynced |= outlives_boot(record)
        self._files.put(self._locked, record)

    def delete(self, uid: str) -> None:
        self.unsynced = True
        self._files.delete(self._locked, uid)
