"""The journal's lock file, and the count of changes that stands in it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from threading import Event
from uuid import uuid4

from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.lock_file import LockFile, OpenFile
from dra_driver.errors import AdapterError
from dra_driver.ports import Clock

_LOCK_WAIT_S = 10.0
_LOCK_POLL_S = 0.002

Count = tuple[int, str]
"""What the lock file says: a number, and a name that no other lock file ever had."""


class RecordCounter:
    """Every call but `lock` and `unlock` returns at once; for one thread at a time.

    Args:
        path: of the lock file.
        folder: what it guards, which words the errors.
    """

    def __init__(self, path: Path, *, folder: DurableFolder, clock: Clock) -> None:
        self._path = path
        self._file = LockFile(path)
        self._folder = folder
        self._clock = clock
        self._text: bytes | None = None
        self._count: Count = (0, "")

    def now(self, locked: OpenFile | None = None) -> Count:
        """What the file says now; `locked` is what `lock` gave, where the lock is held."""
        try:
            file = locked or self._file.open()
            text = os.pread(file.descriptor, 64, 0)
        except OSError as error:
            raise self._folder.failure("read the counter beside", error) from error
        if text != self._text:
            self._count = _parsed(text)
            # What says nothing is not to be taken for the same nothing in another file.
            self._text = text if self._count[0] else None
        return self._count

    def advance(self, file: OpenFile, count: Count) -> Count:
        """Count a change from what was last seen, and give the new count."""
        number, name = count
        try:
            os.pwrite(file.descriptor, f"{number + 1:020d} {name}\n".encode(), 0)
        except OSError as error:
            raise self._folder.failure("count a change beside", error) from error
        return number + 1, name

    def lock(self) -> OpenFile:
        """Lock the file against other processes, and give what `unlock` is to be given."""
        pause: Event | None = None
        give_up_s = 0.0
        while True:
            try:
                file = self._file.open()
                fcntl.flock(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass
            except OSError as error:
                raise self._folder.failure("lock the journal of", error) from error
            else:
                return file
            now_s = self._clock.monotonic_s()
            give_up_s = give_up_s or now_s + _LOCK_WAIT_S
            if now_s >= give_up_s:
                raise AdapterError(
                    f"{self._path} has been locked by another process for {_LOCK_WAIT_S:.0f} s"
                    " (--state-dir): look for a stopped gpuslice process on this node"
                )
            pause = pause or Event()
            pause.wait(_LOCK_POLL_S)

    def unlock(self, file: OpenFile) -> None:
        fcntl.flock(file.descriptor, fcntl.LOCK_UN)


def _parsed(text: bytes) -> Count:
    number, _, name = text.decode("ascii", "replace").strip().partition(" ")
    return (int(number), name) if number.isdecimal() and name else (0, uuid4().hex)
