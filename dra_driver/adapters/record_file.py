"""The journal as files, `<claim UID>.json`, one for each claim.

All plugin processes of a node share it. The lock file holds a counter that is raised before each
change; a process whose view was read at the same count need not look at the folder again, so a
transaction costs the same with one live claim or a thousand.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import assert_never

from dra_driver import log
from dra_driver.adapters.damaged import LONGEST_REASON, PASSING, set_aside
from dra_driver.adapters.durable import DurableFolder, Staged
from dra_driver.adapters.lock_file import OpenFile
from dra_driver.adapters.record_counter import Count, RecordCounter
from dra_driver.adapters.record_folders import RecordFolders, file_of, outlives_boot
from dra_driver.adapters.record_index import Identity, RecordIndex
from dra_driver.adapters.record_transaction import RecordTransaction
from dra_driver.errors import AdapterError
from dra_driver.model.record import NewerRecord, Record
from dra_driver.ports import Clock, JournalTransaction, JournalView, Recorder
from dra_driver.state import codec

_log = log.get(__name__)


class RecordFiles:
    """The Journal of a node.

    Args:
        state_dir: holds `journal.lock` and the records that last; made when first needed.
        run_dir: holds the others.
    """

    def __init__(self, state_dir: Path, run_dir: Path, *, clock: Clock, recorder: Recorder) -> None:
        self._recorder = recorder
        self._folders = folders = RecordFolders(state_dir, run_dir)
        self._counter = RecordCounter(
            state_dir / "journal.lock", folder=folders.lasting, clock=clock
        )
        self._mutex = Lock()
        self._count: Count = (0, "")
        self._view: Count | None = None
        self._index = RecordIndex()
        self._staged: dict[int, Staged] = {}

    def view(self) -> AbstractContextManager[JournalView]:
        """Look without the lock of all processes, where the counter says that nothing changed.

        It is raised before a change, so a change whose count is not seen here has not begun.
        """
        return _Look(self)

    def look(self) -> RecordIndex:
        """Begin a view; `leave` ends it."""
        self._mutex.acquire()
        try:
            if self._view is None or self._view != self._counter.now():
                file = self._counter.lock()
                try:
                    self._refresh(file)
                finally:
                    self._counter.unlock(file)
        except BaseException:
            self._mutex.release()
            raise
        return self._index

    def leave(self) -> None:
        self._mutex.release()

    @contextmanager
    def staged(self, record: Record) -> Iterator[None]:
        with self._write_out(record) as staged:
            # One step of the interpreter each, and nobody else has this very object.
            self._staged[id(record)] = staged
            try:
                yield
            finally:
                self._staged.pop(id(record), None)

    @contextmanager
    def transaction(self) -> Iterator[JournalTransaction]:
        """Hold the lock of all processes; what was put or deleted is durable at the end.

        Only what is RESERVED is not: it has to outlive processes, which it does from its rename on,
        and no boot. Where the run folder is on a disk, a power cut leaves nothing of it, the whole
        or an empty file, which no other write leaves.

        The folder is synced after the lock is free, so that transactions wait for no disk but
        their own and share syncs. Others may thus see a record that a power cut could still take;
        but a power cut ends the boot, and a record of another boot holds nothing anyway.
        """
        with self._mutex:
            file = self._counter.lock()
            try:
                self._refresh(file)
                transaction = RecordTransaction(self, self._index, file)
                yield transaction
            finally:
                self._counter.unlock(file)
        if transaction.unsynced:
            self._folders.lasting.sync()

    def put(self, locked: OpenFile, record: Record) -> None:
        uid = record.claim.uid
        self._refuse_newer(uid)
        staged = self._staged.pop(id(record), None)
        file = staged or self._write_out(record)
        try:
            self._begin_change(locked)
            identity = _identity(file.commit())
        finally:
            if file is not staged:
                file.close()
        before = self._index.find(uid)
        if before is not None:
            self._folders.remove_other(before, record)
        self._index.put(record, identity)
        self._end_change()

    def delete(self, locked: OpenFile, uid: str) -> None:
        self._refuse_newer(uid)
        self._begin_change(locked)
        self._folders.remove(uid)
        self._index.forget(uid)
        self._end_change()

    def _write_out(self, record: Record) -> Staged:
        content = codec.encode(record).encode()
        return self._folders.of(record).staged(
            file_of(record.claim.uid), content, lasting=outlives_boot(record)
        )

    def _refuse_newer(self, uid: str) -> None:
        newer = self._index.newer_at(uid)
        if newer is not None:
            raise AdapterError(newer.text)

    def _begin_change(self, locked: OpenFile) -> None:
        # Raised first: a process that dies in the middle leaves others to look, not to trust.
        self._view = None
        self._count = self._counter.advance(locked, self._count)

    def _end_change(self) -> None:
        self._view = self._count

    def _refresh(self, locked: OpenFile) -> None:
        self._count = self._counter.now(locked)
        if self._count == self._view:
            return
        if self._view is None:
            self._folders.sweep()
        self._view = None
        entries = self._folders.entries()
        for gone in self._index.known() - entries.keys():
            self._index.forget(gone)
        for uid, folder in sorted(entries.items()):
            self._read(uid, _Entry(folder, file_of(uid)), locked)
            if folder is self._folders.lasting and self._index.find(uid) is not None:
                # A process was killed before it did.
                self._folders.tidy(uid)
        self._view = self._count

    def _read(self, uid: str, entry: _Entry, locked: OpenFile) -> None:
        try:
            identity = _identity(entry.path.stat())
            if self._index.is_known(uid, identity):
                return
            self._index.forget(uid)
            content = entry.folder.read(entry.name)
        except FileNotFoundError:
            content = None
        except OSError as error:
            if error.errno in PASSING:
                # The entry is as good as ever: whoever asks now has to ask again.
                with entry.folder.reported(f"read {entry.name} in"):
                    raise
            self._set_aside(entry, f"it cannot be read: {error.strerror}", locked)
            return
        if content is None:
            # Somebody removed it, by hand or without this lock file; a successor is not to suffer.
            self._index.forget(uid)
        elif content == b"":
            self._drop(entry, locked)
        else:
            self._take_in(uid, content, identity, entry, locked)

    def _take_in(
        self, uid: str, content: bytes, identity: Identity, entry: _Entry, locked: OpenFile
    ) -> None:
        decoded = codec.decode(content)
        match decoded:
            case Record() if decoded.claim.uid == uid:
                self._index.put(decoded, identity)
            case Record():
                text = f"it speaks of claim {decoded.claim.uid}"
                self._set_aside(entry, text, locked)
            case codec.FromTheFuture(what=what, held=held):
                newer = NewerRecord(text=self._leave_alone(entry.path, what), held=held)
                self._index.put_newer(uid, newer, identity)
            case codec.Damaged(text=text):
                self._set_aside(entry, text, locked)
            case _ as never:
                assert_never(never)

    def _leave_alone(self, path: Path, what: str) -> str:
        _log.error("A newer version wrote a journal entry", file=str(path), unknown=what)
        self._recorder.count("journal_unreadable_total", cause="newer")
        return (
            f"journal entry {path} was written by a newer gpuslice ({what}): upgrade this node's"
            " plugin again, or roll back only after the claim's pods are gone"
        )

    def _drop(self, entry: _Entry, locked: OpenFile) -> None:
        """Remove an intent that a power cut has emptied; its boot and its effects are gone."""
        self._begin_change(locked)
        entry.folder.unlink(entry.name)
        self._end_change()
        _log.info("Removed an intent that was never written out", file=str(entry.path))

    def _set_aside(self, entry: _Entry, reason: str, locked: OpenFile) -> None:
        self._begin_change(locked)
        aside = set_aside(entry.folder, entry.name)
        self._end_change()
        _log.error(
            "Set aside a damaged journal entry",
            file=str(aside),
            reason=reason[:LONGEST_REASON],
        )
        self._recorder.count("journal_unreadable_total", cause="damaged")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of the journal."""

    folder: DurableFolder
    name: str

    @property
    def path(self) -> Path:
        return self.folder.path / self.name


class _Look:
    """A view in a block; no generator, as each claim passes here several times."""

    __slots__ = ("_files",)

    def __init__(self, files: RecordFiles) -> None:
        self._files = files

    def __enter__(self) -> RecordIndex:
        return self._files.look()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.leave()


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
