"""The journal as files: `<state-dir>/claims/<claim UID>.json`, one for each claim.

All plugin processes of a node share it. The lock file holds a counter that is raised before each
change; a process whose view was read at the same count need not look at the folder again, so a
transaction costs the same with one live claim or a thousand.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Event, Lock
from typing import assert_never
from uuid import uuid4

from dra_driver import log
from dra_driver.adapters.damaged import LONGEST_REASON, set_aside
from dra_driver.adapters.durable import DurableFolder, Staged
from dra_driver.adapters.lock_file import LockFile
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
_LOCK_WAIT_S = 10.0
_LOCK_POLL_S = 0.002

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
"""What keeps a process from reading any file, not this one from being read."""

_Identity = tuple[int, int, int]
"""Inode, modification time and size: every write makes a new file."""

_Count = tuple[int, str]
"""What the lock file says: a number, and a name that no other lock file ever had."""


class RecordFiles:
    """The Journal of a node.

    Args:
        state_dir: holds `claims/` and `journal.lock`; made when first needed.
    """

    def __init__(self, state_dir: Path, *, clock: Clock, recorder: Recorder) -> None:
        self._clock = clock
        self._recorder = recorder
        # Records name namespaces and claims: they are nobody else's to read.
        self._folder = DurableFolder(state_dir / "claims", setting=_SETTING, mode=0o600)
        self._lock_path = state_dir / "journal.lock"
        self._lock_file = LockFile(self._lock_path)
        self._mutex = Lock()
        self._count: _Count = (0, "")
        self._view: _Count | None = None
        self._records: dict[str, Record] = {}
        self._by_key: dict[str, dict[str, Record]] = {}
        self._newer: dict[str, NewerRecord] = {}
        self._identities: dict[str, _Identity] = {}

    @contextmanager
    def view(self) -> Iterator[JournalView]:
        """Look without the lock of all processes, where the counter says that nothing changed.

        It is raised before a change, so a change whose count is not seen here has not begun.
        """
        with self._mutex:
            with self._folder.reported("read the counter beside"):
                file = self._lock_file.open()
                count = _parsed(os.pread(file.descriptor, 64, 0))
            if self._view is None or count != self._view:
                with self._locked() as descriptor:
                    self._refresh(descriptor)
            yield self

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
        writing = (
            nullcontext()
            if intended is None
            else self._folder.staged(*file_of(intended), lasting=not is_intent(intended))
        )
        with writing as staged, self._mutex, self._locked() as descriptor:
            self._refresh(descriptor)
            transaction = RecordTransaction(self, descriptor, intended, staged)
            yield transaction
        if transaction.unsynced:
            self._folder.sync()

    def records(self) -> Mapping[str, Record]:
        return dict(self._records)

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        keys = (*gpus, *pods)
        return {uid: each for key in keys for uid, each in self._by_key.get(key, {}).items()}

    def newer(self) -> Mapping[str, NewerRecord]:
        return dict(self._newer)

    def put(self, descriptor: int, record: Record, staged: Staged | None) -> None:
        uid = record.claim.uid
        self._refuse_newer(uid)
        with self._change(descriptor), ExitStack() as own:
            file = staged or own.enter_context(self._folder.staged(*file_of(record)))
            identity = _identity(file.commit())
            self._forget(uid)
            self._remember(record, identity)

    def delete(self, descriptor: int, uid: str) -> None:
        self._refuse_newer(uid)
        with self._change(descriptor):
            self._folder.unlink(f"{uid}{ENDING}")
            self._forget(uid)

    def _refuse_newer(self, uid: str) -> None:
        newer = self._newer.get(uid)
        if newer is not None:
            raise AdapterError(newer.text)

    @contextmanager
    def _change(self, descriptor: int) -> Iterator[None]:
        # Raised first: a process that dies in the middle leaves others to look, not to trust.
        self._view = None
        number, name = self._count
        self._count = (number + 1, name)
        with self._folder.reported("count a change beside"):
            os.pwrite(descriptor, f"{number + 1:020d} {name}\n".encode(), 0)
        yield
        self._view = self._count

    def _refresh(self, descriptor: int) -> None:
        with self._folder.reported("read the counter beside"):
            self._count = _parsed(os.pread(descriptor, 64, 0))
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
            self._read(uid, descriptor)
        self._view = self._count

    def _remember(self, record: Record, identity: _Identity) -> None:
        uid = record.claim.uid
        self._identities[uid] = identity
        self._records[uid] = record
        for key in _keys(record):
            self._by_key.setdefault(key, {})[uid] = record

    def _forget(self, uid: str) -> None:
        self._identities.pop(uid, None)
        self._newer.pop(uid, None)
        record = self._records.pop(uid, None)
        for key in _keys(record) if record is not None else ():
            self._by_key[key].pop(uid, None)
            if not self._by_key[key]:
                del self._by_key[key]

    def _read(self, uid: str, descriptor: int) -> None:
        name = f"{uid}{ENDING}"
        try:
            identity = _identity((self._folder.path / name).stat())
            if self._identities.get(uid) == identity:
                return
            self._forget(uid)
            content = self._folder.read(name)
        except OSError as error:
            if error.errno in _PASSING:
                # The entry is as good as ever: whoever asks now has to ask again.
                with self._folder.reported(f"read {name} in"):
                    raise
            self._set_aside(name, f"it cannot be read: {error.strerror}", descriptor)
            return
        if content == b"":
            self._drop(name, descriptor)
            return
        decoded = codec.decode(content or b"")
        match decoded:
            case Record() if decoded.claim.uid == uid:
                self._remember(decoded, identity)
            case Record():
                text = f"it speaks of claim {decoded.claim.uid}"
                self._set_aside(name, text, descriptor)
            case codec.FromTheFuture(what=what, held=held):
                self._newer[uid] = NewerRecord(text=self._leave_alone(name, what), held=held)
                self._identities[uid] = identity
            case codec.Damaged(text=text):
                self._set_aside(name, text, descriptor)
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

    def _drop(self, name: str, descriptor: int) -> None:
        """Remove an intent that a power cut has emptied; its boot and its effects are gone."""
        with self._change(descriptor):
            self._folder.unlink(name)
        _log.info("Removed an intent that was never written out", file=name)

    def _set_aside(self, name: str, reason: str, descriptor: int) -> None:
        with self._change(descriptor):
            aside = set_aside(self._folder, name)
        _log.error(
            "Set aside a damaged journal entry",
            file=str(aside),
            reason=reason[:LONGEST_REASON],
        )
        self._recorder.count("journal_unreadable_total", cause="damaged")

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with self._folder.reported("lock the journal of"):
            file = self._lock_file.open()
        self._wait_for_lock(file.descriptor)
        try:
            yield file.descriptor
        finally:
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)

    def _wait_for_lock(self, descriptor: int) -> None:
        give_up_s = self._clock.monotonic_s() + _LOCK_WAIT_S
        pause: Event | None = None
        while True:
            with self._folder.reported("lock the journal of"), suppress(BlockingIOError):
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._clock.monotonic_s() >= give_up_s:
                raise AdapterError(
                    f"{self._lock_path} has been locked by another process for {_LOCK_WAIT_S:.0f} s"
                    f" ({_SETTING}): look for a stopped gpuslice process on this node"
                )
            pause = pause or Event()
            pause.wait(_LOCK_POLL_S)


def _keys(record: Record) -> tuple[str, ...]:
    return (*record.gpus, *(pod.uid for pod in record.pods))


def _parsed(text: bytes) -> _Count:
    number, _, name = text.decode("ascii", "replace").strip().partition(" ")
    return (int(number), name) if number.isdecimal() and name else (0, uuid4().hex)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_size
