"""Unix sockets of this process: how one is put in place, whose it is, and when it is a dead one's.

gRPC replaces whatever stands at a path it binds and removes whatever stands there when it stops,
a living neighbour's socket included. So an instance is guarded by a lock that is taken before any
socket is made; a socket is bound under a hidden name and renamed into place, which also makes it
appear only when it is served; and it is removed only while it is still the same inode.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dra_driver import log
from dra_driver.errors import FatalError

PATH_MAX_BYTES = 107
"""sockaddr_un has 108 bytes, of which gRPC wants one for the terminating NUL."""

_SOCKET_MODE = 0o600
_PROBE_TIMEOUT_S = 1.0

_log = log.get(__name__)


class HeldByAnother(FatalError):  # noqa: N818 - reads as the state that it is
    """Another process does what only one may do."""


@dataclass(frozen=True, slots=True)
class ServedSocket:
    """A socket that this process put in place."""

    path: Path
    inode: tuple[int, int]

    def stands(self) -> bool:
        """Whether who looks for the socket finds it still."""
        with suppress(OSError):
            return _inode(self.path) == self.inode
        return False

    def withdraw(self) -> None:
        """Remove the socket, unless another process has put its own there since."""
        with suppress(OSError):
            if _inode(self.path) == self.inode:
                self.path.unlink()


def hidden_path(path: Path) -> Path:
    """Where to bind before `publish`: a name with a dot, which is not longer.

    One per final path, so it is as exclusive as the instance.
    """
    return path.with_name(f".{sha256(os.fsencode(path)).hexdigest()[:7]}")


def publish(path: Path, *, bound: Path) -> ServedSocket:
    """Move a served socket from where it was bound to `path`, over nothing that is alive.

    Raises:
        FatalError: the folder does not allow it.
    """
    try:
        bound.chmod(_SOCKET_MODE)
        inode = _inode(bound)
        bound.rename(path)
    except OSError as error:
        raise FatalError(f"cannot put the socket {path} in place: {error.strerror}") from error
    return ServedSocket(path, inode)


def lock_file(path: Path) -> int | None:
    """Lock a file and keep it open; its descriptor, or None: somebody else has it.

    The file is made where there is none. Raises OSError.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # A neighbour may have removed the file of a dead instance between open and lock.
        with suppress(FileNotFoundError):
            locked = os.fstat(descriptor)
            if _inode(path) == (locked.st_dev, locked.st_ino):
                return descriptor
        os.close(descriptor)


@contextmanager
def only_process(lock: Path, *, what: str) -> Iterator[None]:
    """Hold a lock file, and remove it at the end.

    Args:
        lock: its folder is made where there is none.
        what: that another process must not do beside this one; for people.

    Raises:
        HeldByAnother: another process holds it.
        FatalError: its folder cannot be used.
    """
    try:
        if not lock.parent.exists():
            # Users of containers have to pass through to their sockets, whatever our umask is.
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.parent.chmod(0o755)
        descriptor = lock_file(lock)
        if descriptor is None:
            raise HeldByAnother(
                f"another process{_holder(lock)} holds {lock} and {what}: stop it first"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError as error:
        raise FatalError(
            f"cannot use {lock}: {error.strerror}; its folder has to be writable"
        ) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def bound_path(path: Path) -> Path:
    """Where the socket is made: in a folder that only we can enter, until its mode is set."""
    hidden = hidden_path(path)
    return hidden.with_name(hidden.name[:6]) / "s"


@contextmanager
def private_folder(folder: Path) -> Iterator[None]:
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise FatalError(f"{folder} is in the way and not ours: remove it")
        folder.chmod(0o700)
        yield
    except OSError as error:
        raise FatalError(f"cannot use {folder}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            folder.rmdir()


def is_dead_socket(path: Path) -> bool:
    """Whether it is a socket that nobody serves."""
    with suppress(OSError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_TIMEOUT_S)
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                return True
    return False


def make_way(path: Path) -> None:
    """Remove what a dead process left where a socket is to be.

    Raises:
        FatalError: what stands there is alive, or no socket.
        OSError: it cannot be removed.
    """
    if not os.path.lexists(path):
        return
    if not is_dead_socket(path):
        raise FatalError(f"{path} exists and is no dead socket: stop what serves it, or remove it")
    remove_socket(path)


def bind_server(add_port: Callable[[str], int], path: Path, *, bound: Path) -> None:
    """Let a gRPC server listen at `bound`, from where its socket goes to `path`.

    `add_port` is the server's add_insecure_port, which gives 0 or raises where it cannot.

    Raises:
        FatalError: the socket cannot be made.
    """
    try:
        made = add_port(f"unix:{bound}") != 0
    except RuntimeError:
        made = False
    if not made:
        raise FatalError(
            f"cannot make the socket {path}: check that its folder is writable, not full, and on a"
            " file system that knows sockets"
        )


def remove_socket(path: Path) -> None:
    """Remove a dead process's socket; anything else stays."""
    if path.is_socket():
        _log.info("Removing the socket of a dead process", path=str(path))
        path.unlink(missing_ok=True)


def _inode(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _holder(lock: Path) -> str:
    with suppress(OSError, ValueError):
        return f" (pid {int(lock.read_text())})"
    return ""
