"""Files of the host outside our own folders: replaced whole, never through a link of somebody's.

A symbolic link on the host means another place once it is seen below --host-root, so none is ever
followed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dra_driver.adapters.durable import DurableFolder
from dra_driver.errors import AdapterError

SETTING = "--host-root"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFile:
    """A file as it is; `mode` is its permissions alone."""

    content: bytes
    mode: int
    uid: int
    gid: int


def read_file(path: Path) -> HostFile | None:
    """A regular file; None where there is nothing of that name.

    Raises:
        AdapterError: it is a link, no file, too large, or cannot be read.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                raise AdapterError(f"{path} is no file of a size to expect; look at it by hand")
            return HostFile(
                content=file.read(),
                mode=stat.S_IMODE(status.st_mode),
                uid=status.st_uid,
                gid=status.st_gid,
            )
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise AdapterError(
                f"{path} is a symbolic link, and where it leads on the host cannot be told from"
                " here; put the file there instead of the link"
            ) from error
        raise AdapterError(f"cannot read {path} ({SETTING}): {error.strerror}") from error


def replace_file(path: Path, file: HostFile) -> None:
    """Put a file in place, durable on return; it may be a program that runs, which goes on.

    Raises:
        AdapterError: it could not; the old file stands.
    """
    folder = DurableFolder(path.parent, setting=SETTING)
    folder.sweep(path.name)
    staged = path.with_name(f".{path.name}.{folder.next_suffix()}.tmp")
    with folder.reported(f"write {path.name} into"):
        # A program cannot be started while somebody has it open for writing, and a lock on this
        # second descriptor says that the temporary file is not a leftover.
        descriptor = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        lock = os.open(staged, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _fill(descriptor, file)
            staged.replace(path)
        except BaseException:
            with suppress(OSError):
                staged.unlink()
            raise
        finally:
            os.close(lock)
    folder.count_change()
    folder.sync()


def ensure_folder(root: Path, folder: Path, *, owner: int) -> bool:
    """Make the missing folders from `root`, which is there, to `folder`; whether it made the last.

    Raises:
        AdapterError: one of them is a link, or somebody other than `owner` may change it.
    """
    made = False
    for path in _way(root, folder):
        with DurableFolder(path.parent, setting=SETTING).reported(f"make {path.name} in"):
            try:
                path.mkdir(0o755)
                made = True
            except FileExistsError:
                made = False
        _check_folder(path, owner)
    return made


def folder_exists(root: Path, folder: Path, *, owner: int) -> bool:
    """Whether all folders from `root` down to `folder` are there.

    Raises:
        AdapterError: as `ensure_folder`.
    """
    for path in _way(root, folder):
        if not os.path.lexists(path):
            return False
        _check_folder(path, owner)
    return True


def _way(root: Path, folder: Path) -> list[Path]:
    parts = folder.relative_to(root).parts
    return [root.joinpath(*parts[: count + 1]) for count in range(len(parts))]


def _check_folder(path: Path, owner: int) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise AdapterError(f"{path} is a link or a file where a folder is needed; name another one")
    if status.st_uid != owner or status.st_mode & _WRITABLE_BY_OTHERS:
        raise AdapterError(
            f"{path} may be changed by others than user {owner} (its owner is {status.st_uid}, its"
            f" mode {stat.S_IMODE(status.st_mode):04o}), and what root runs must not lie there;"
            f" chown it to {owner} and chmod it to 0755"
        )


def _fill(descriptor: int, file: HostFile) -> None:
    with os.fdopen(descriptor, "wb") as staged:
        staged.write(file.content)
        staged.flush()
        status = os.fstat(descriptor)
        if (status.st_uid, status.st_gid) != (file.uid, file.gid):
            os.fchown(descriptor, file.uid, file.gid)
        os.fchmod(descriptor, file.mode)
        os.fsync(descriptor)
