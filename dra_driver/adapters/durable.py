"""Durable, atomic writes into one folder.

A file appears whole or not at all, and stays after a power cut: temporary file in the same folder,
fsync, rename, fsync of the folder. Temporary names start with a dot and end in ".tmp", so that
nobody who reads *.json or *.yaml ever sees half a file.

A writer holds a lock on its temporary file until the rename, so a leftover is known by a lock that
nobody holds, whichever process, container or boot it came from.
"""

# A claim passes here several times, so paths are text and `os` does the work: pathlib takes longer
# than most of the system calls behind it.
# ruff: noqa: PTH105, PTH108, PTH123

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self
from uuid import uuid4

from dra_driver.errors import AdapterError

_ATTEMPTS = 3

_WAY_OUT = {
    errno.ENOSPC: "free space on that file system",
    errno.EDQUOT: "raise the quota of that file system",
    errno.EFBIG: "raise the file size limit of the process",
    errno.EROFS: "mount it read-write into the plugin's container",
    errno.EACCES: "let the plugin write there",
    errno.EPERM: "let the plugin write there",
    errno.EEXIST: "a file stands where a folder is needed: remove it or name another folder",
    errno.ENOTDIR: "a file stands where a folder is needed: remove it or name another folder",
    errno.EMFILE: "raise the open files limit of the process",
}


class DurableFolder:
    """One folder, made when first needed.

    Args:
        path: the folder; `text` is the same as a string.
        setting: the flag that names it, for error texts.
        mode: of files; the umask does not apply.
    """

    def __init__(self, path: Path, *, setting: str, mode: int = 0o644) -> None:
        self.path = path
        self.text = str(path)
        self._setting = setting
        self._mode = mode
        # Unlike any other writer's, wherever it runs.
        self._writer = uuid4().hex
        self._suffixes = count()
        self._changes = 0
        self._synced = 0
        self._counting = Lock()
        self._syncing = Lock()

    def write(self, name: str, content: bytes) -> None:
        """Put a file in place, durable on return.

        Raises:
            AdapterError: it could not; the old content stands.
        """
        self.place(name, content)
        self.sync()

    def place(self, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Put a file in place; a power cut may undo it until `sync` returns.

        Without `lasting` as `staged`.
        """
        with self.staged(name, content, lasting=lasting) as staged:
            staged.commit()

    def staged(self, name: str, content: bytes, *, lasting: bool = True) -> Staged:
        """Write a file out beside its place; it goes with the block unless committed.

        Without `lasting`, a power cut may leave it empty in its place.

        Raises:
            AdapterError: it could not.
        """
        try:
            return self._stage(name, content, lasting=lasting)
        except OSError as error:
            raise self.failure(f"write {name} into", error) from error

    def unlink(self, name: str) -> bool:
        """Remove a file; False where there was none. A power cut may undo it until `sync`."""
        try:
            os.unlink(f"{self.text}/{name}")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self.failure(f"remove {name} from", error) from error
        self.count_change()
        return True

    def next_suffix(self) -> str:
        """What no temporary file was ever called by."""
        return f"{self._writer}-{next(self._suffixes)}"

    def count_change(self) -> None:
        """Let `sync` know of a change that is done."""
        with self._counting:
            self._changes += 1

    def sync(self) -> None:
        """Make all changes so far durable; calls at one time share one fsync, none needs none."""
        mine = self._changes
        with self._syncing:
            if self._synced >= mine:
                return
            covered = self._changes
            try:
                self._fsync()
            except FileNotFoundError:
                pass
            except OSError as error:
                raise self.failure("make changes durable in", error) from error
            self._synced = covered

    def has(self, name: str) -> bool:
        """Whether anything stands under a name, if only a link to nothing."""
        return os.access(f"{self.text}/{name}", os.F_OK, follow_symlinks=False)

    def read(self, name: str) -> bytes | None:
        """Content of a file; None where there is none.

        Raises:
            OSError: it is there and cannot be read, or is no file.
        """
        try:
            # Something else of that name, such as a named pipe, must not keep the caller waiting.
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(f"{self.text}/{name}", flags)
        except FileNotFoundError:
            return None
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is no file", name)
            return file.read()

    def sweep(self, prefix: str = "") -> None:
        """Remove temporary files of dead writers for names that start with `prefix`."""
        with self.reported("clean up"), self._entries() as entries:
            leftovers = [
                entry.path
                for entry in entries
                if entry.name.startswith(f".{prefix}") and entry.name.endswith(".tmp")
                if entry.is_file(follow_symlinks=False)  # no writer of ours makes anything else
            ]
            for path in leftovers:
                _remove_if_dead(path)

    def names(self) -> tuple[str, ...]:
        """Names in the folder, sorted; empty where there is no folder."""
        with self.reported("list"), self._entries() as entries:
            return tuple(sorted(entry.name for entry in entries))

    def failure(self, action: str, error: OSError) -> AdapterError:
        """What the operating system refused, and what to do."""
        way_out = _WAY_OUT.get(error.errno or 0, "check that file system")
        where = f"{self.text} ({self._setting})"
        return AdapterError(f"cannot {action} {where}: {error.strerror}; {way_out}")

    @contextmanager
    def reported(self, action: str) -> Iterator[None]:
        """Turn failures of the operating system in a block into `failure`."""
        try:
            yield
        except OSError as error:
            raise self.failure(action, error) from error

    def _stage(self, name: str, content: bytes, *, lasting: bool) -> Staged:
        for _ in range(_ATTEMPTS):
            try:
                staged = Staged(self, name, mode=self._mode)
            except FileNotFoundError:
                self.path.mkdir(parents=True, exist_ok=True)
                continue
            try:
                if staged.fill(content, lasting=lasting):
                    return staged
            except BaseException:
                staged.close()
                raise
            staged.close()
        raise FileNotFoundError(errno.ENOENT, "its folder vanishes again and again", name)

    def _fsync(self) -> None:
        descriptor = os.open(self.text, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _entries(self) -> Iterator[Iterator[os.DirEntry[str]]]:
        try:
            scan = os.scandir(self.path)
        except FileNotFoundError:
            yield iter(())
            return
        with scan:
            yield scan


_NOTHING = os.stat_result((0,) * 10)


class Staged:
    """A file that is written but not in its place yet; used as a context manager."""

    def __init__(self, folder: DurableFolder, name: str, *, mode: int) -> None:
        self._folder = folder
        self._name = name
        self._mode = mode
        self._in_place = False
        self._path = f"{folder.text}/.{name}.{folder.next_suffix()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, mode)
        self._status = _NOTHING

    def fill(self, content: bytes, *, lasting: bool) -> bool:
        """Write the content out; False where a cleaner took the file before it was locked."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        _write_all(self._descriptor, content)
        self._status = os.fstat(self._descriptor)
        if self._status.st_nlink == 0:
            return False
        if stat.S_IMODE(self._status.st_mode) != self._mode:
            os.fchmod(self._descriptor, self._mode)
        if lasting:
            os.fsync(self._descriptor)
        return True

    def commit(self) -> os.stat_result:
        """Put the file in its place, for `sync` to make it last; gives its inode, time and size.

        Raises:
            AdapterError: it could not; the old content stands.
        """
        try:
            os.replace(self._path, f"{self._folder.text}/{self._name}")
        except OSError as error:
            raise self._folder.failure(f"write {self._name} into", error) from error
        self._in_place = True
        self._folder.count_change()
        return self._status

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file unless it was committed; once."""
        try:
            if not self._in_place:
                # One that stays is swept later; a failure here would hide the one that led to it.
                with suppress(OSError):
                    os.unlink(self._path)
        finally:
            os.close(self._descriptor)


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _remove_if_dead(path: str) -> None:
    with suppress(FileNotFoundError, BlockingIOError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The name may have been renamed into place meanwhile; then there is nothing to remove.
            os.unlink(path)
        finally:
            os.close(descriptor)
