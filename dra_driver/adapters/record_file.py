"""The journal as files: `<state-dir>/claims/<claim UID>.json`, one for each claim.

All plugin processes of a node share it. The lock file holds a counter that is raised before each
change; a process whose view was read at the same count need not look at the folder again, so a
transaction costs the same with one live claim or a thousand.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import assert_never

from dra_driver import log
from dra_driver.adapters.damaged import LONGEST_REASON, PASSING, set_aside
from dra_driver.adapters.durable import DurableFolder, Staged
from dra_driver.adapters.lock_file import OpenFile
from dra_driver.adapters.record_counter import Count, RecordCounter
from dra_driver.adapters.record_transaction import (
    ENDING,
    RecordTransaction,
    file_of,
    is_intent,
)
from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import NewerRecord, Record
from dra_driver.ports import Clock, JournalTransaction, JournalView, Recorder
from dra_driver.state import codec

_log = log.get(__name__)

_SETTING = "--state-dir"

_Identity = tuple[int, int, int]
"""Inode, modification time and size: every write makes a new file."""


class RecordFiles:
    """The Journal of a node.

    Args:
        state_dir: holds `claims/` and `journal.lock`; made when first needed.
    """

    def __init__(self, state_dir: Path, *, clock: Clock, recorder: Recorder) -> None:
        self._recorder = recorder
        # Records name namespaces and claims: they are nobody else's to read.
        self._folder = DurableFolder(state_dir / "claims", setting=_SETTING, mode=0o600)
        self._counter = RecordCounter(state_dir / "journal.lock", folder=self._folder, clock=clock)
        self._mutex = Lock()
        self._count: Count = (0, "")
        self._view: Count | None = None
        self._records: dict[str, Record] = {}
        self._by_key: dict[str, dict[str, Record]] = {}
        self._newer: dict[str, NewerRecord] = {}
        self._identities: dict[str, _Identity] = {}

    def view(self) -> AbstractContextManager[JournalView]:
        """Look without the lock of all processes, where the counter says that nothing changed.

        It is raised before a change, so a change whose count is not seen here has not begun.
        """
        return _Look(self)

    def look(self) -> None:
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

    def leave(self) -> None:
        self._mutex.release()

    @contextmanager
    def transaction(self, intended: Record | None = None) -> Iterator[JournalTransaction]:
        """Hold the lock of all processes; what was put or deleted is durable at the end.

        Only an `intended` that is RESERVED is not: it has to outlive processes, which it does from
        its rename on, and no boot, as it holds nothing in the next one. What a power cut leaves of
        it is nothing, the whole or an empty file, which no other write leaves.

        `intended` is written out before the lock is taken, and the folder synced after it is free,
        so that transactions wait for no disk but their own and share syncs. Others may thus see a
        record that a power cut could still take; but a power cut ends the boot, and a record of
        another boot holds nothing anyway.
        """
        staged = None
        if intended is not None:
            staged = self._folder.staged(*file_of(intended), lasting=not is_intent(intended))
        try:
            with self._mutex:
                file = self._counter.lock()
                try:
                    self._refresh(file)
                    transaction = RecordTransaction(self, file, intended, staged)
                    yield transaction
                finally:
                    self._counter.unlock(file)
        finally:
            if staged is not None:
                staged.close()
        if transaction.unsynced:
            self._folder.sync()

    def find(self, uid: str) -> Record | None:
        return self._records.get(uid)

    def records(self) -> Mapping[str, Record]:
        return dict(self._records)

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        keys = (*gpus, *pods)
        return {uid: each for key in keys for uid, each in self._by_key.get(key, {}).items()}

    def newer(self) -> Mapping[str, NewerRecord]:
        return dict(self._newer)

    def put(self, locked: OpenFile, record: Record, staged: Staged | None) -> None:
        uid = record.claim.uid
        self._refuse_newer(uid)
        file = staged or self._folder.staged(*file_of(record))
        try:
            self._begin_change(locked)
            identity = _identity(file.commit())
        finally:
            if file is not staged:
                file.close()
        self._forget(uid)
        self._remember(record, identity)
        self._end_change()

    def delete(self, locked: OpenFile, uid: str) -> None:
        self._refuse_newer(uid)
        self._begin_change(locked)
        self._folder.unlink(f"{uid}{ENDING}")
        self._forget(uid)
        self._end_change()

    def _refuse_newer(self, uid: str) -> None:
        newer = self._newer.get(uid)
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
            self._folder.sweep()
        self._view = None
        uids = {
            name.removesuffix(ENDING)
            for name in self._folder.names()
            if name.endswith(ENDING) and not name.startswith(".")
        }
        for gone in self._identities.keys() - uids:
            self._forget(gone)
        for uid in sorted(uids):
            self._read(uid, locked)
        self._view = self._count

    def _remember(self, record: Record, identity: _Identity) -> None:
        uid = record.claim.uid
        self._records[uid] = record
        for key in _keys(record):
            self._by_key.setdefault(key, {})[uid] = record
        # Last: an entry whose identity is known is never read again.
        self._identities[uid] = identity

    def _forget(self, uid: str) -> None:
        self._identities.pop(uid, None)
        self._newer.pop(uid, None)
        record = self._records.pop(uid, None)
        for key in _keys(record) if record is not None else ():
            self._by_key[key].pop(uid, None)
            if not self._by_key[key]:
                del self._by_key[key]

    def _read(self, uid: str, locked: OpenFile) -> None:
        name = f"{uid}{ENDING}"
        try:
            identity = _identity((self._folder.path / name).stat())
            if self._identities.get(uid) == identity:
                return
            self._forget(uid)
            content = self._folder.read(name)
        except FileNotFoundError:
            content = None
        except OSError as error:
            if error.errno in PASSING:
                # The entry is as good as ever: whoever asks now has to ask again.
                with self._folder.reported(f"read {name} in"):
                    raise
            self._set_aside(name, f"it cannot be read: {error.strerror}", locked)
            return
        if content is None:
            # Somebody removed it, by hand or without this lock file; a successor is not to suffer.
            self._forget(uid)
        elif content == b"":
            self._drop(name, locked)
        else:
            self._take_in(uid, content, identity, locked)

    def _take_in(self, uid: str, content: bytes, identity: _Identity, locked: OpenFile) -> None:
        name = f"{uid}{ENDING}"
        decoded = codec.decode(content)
        match decoded:
            case Record() if decoded.claim.uid == uid:
                self._remember(decoded, identity)
            case Record():
                text = f"it speaks of claim {decoded.claim.uid}"
                self._set_aside(name, text, locked)
            case codec.FromTheFuture(what=what, held=held):
                self._newer[uid] = NewerRecord(text=self._leave_alone(name, what), held=held)
                self._identities[uid] = identity
            case codec.Damaged(text=text):
                self._set_aside(name, text, locked)
            case _ as never:
                assert_never(never)

    def _leave_alone(self, name: str, what: str) -> str:
        path = self._folder.path / name
        _log.error("A newer version wrote a journal entry", file=str(path), unknown=what)
        self._recorder.count("journal_unreadable_total", cause="newer")
        return (
            f"journal entry {path} was written by a newer gpuslice ({what}): upgrade this node's"
            " plugin again, or roll back only after the claim's pods are gone"
        )

    def _drop(self, name: str, locked: OpenFile) -> None:
        """Remove an intent that a power cut has emptied; its boot and its effects are gone."""
        self._begin_change(locked)
        self._folder.unlink(name)
        self._end_change()
        _log.info("Removed an intent that was never written out", file=name)

    def _set_aside(self, name: str, reason: str, locked: OpenFile) -> None:
        self._begin_change(locked)
        aside = set_aside(self._folder, name)
        self._end_change()
        _log.error(
            "Set aside a damaged journal entry",
            file=str(aside),
            reason=reason[:LONGEST_REASON],
        )
        self._recorder.count("journal_unreadable_total", cause="damaged")


class _Look:
    """A view in a block; no generator, as each claim passes here several times."""

    __slots__ = ("_files",)

    def __init__(self, files: RecordFiles) -> None:
        self._files = files

    def __enter__(self) -> RecordFiles:
        self._files.look()
        return self._files

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._files.leave()


def _keys(record: Record) -> tuple[str, ...]:
    return (*record.gpus, *(pod.uid for pod in record.pods))


def _identity(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_size
