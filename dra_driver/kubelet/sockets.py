"""Sockets of this process: their names, who owns them, and what dead processes left behind.

gRPC replaces whatever stands at a path it binds and removes whatever stands there when it stops,
a living neighbour's socket included. So an instance is guarded by a lock that is taken before any
socket is made; a socket is bound under a hidden name and renamed into place, which also makes it
appear only when it is served; and it is removed only while it is still the same inode.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dra_driver import log
from dra_driver.errors import FatalError
from dra_driver.kubelet.paths import LOCK_PREFIX, SocketPaths, hidden_path

_POD_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FOLDER_MODE = 0o750
_SOCKET_MODE = 0o600
_PROBE_TIMEOUT_S = 1.0

_log = log.get(__name__)


@contextmanager
def instance(paths: SocketPaths) -> Iterator[None]:
    """Be the only process with these paths; clear away sockets of dead instances on entry.

    Raises:
        FatalError: another process is this instance, or a folder cannot be used.
    """
    try:
        descriptor = _become(paths)
    except OSError as error:
        raise FatalError(
            f"cannot use {error.filename or paths.dra.parent}: {error.strerror}; the folders of the"
            " kubelet's plugins have to be mounted read-write at the same path as on the host"
        ) from error
    try:
        yield
    finally:
        paths.lock.unlink(missing_ok=True)
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class ServedSocket:
    """A socket that this process put in place."""

    path: Path
    inode: tuple[int, int]

    def withdraw(self) -> None:
        """Remove the socket, unless another process has put its own there since."""
        with suppress(OSError):
            if _inode(self.path) == self.inode:
                self.path.unlink()


def publish(path: Path) -> ServedSocket:
    """Move the served socket from its hidden path to `path`, over nothing that is alive.

    Raises:
        FatalError: the folder does not allow it.
    """
    hidden = hidden_path(path)
    try:
        hidden.chmod(_SOCKET_MODE)
        inode = _inode(hidden)
        hidden.rename(path)
    except OSError as error:
        raise FatalError(f"cannot put the socket {path} in place: {error.strerror}") from error
    return ServedSocket(path, inode)


def _become(paths: SocketPaths) -> int:
    """Take the instance's lock, then clear its place; the lock's descriptor."""
    for folder in (paths.dra.parent, paths.registration.parent):
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    descriptor = _lock(paths.lock)
    if descriptor is None:
        raise FatalError(
            f"another process{_owner(paths.lock)} holds {paths.lock} and serves {paths.dra}: stop"
            " it first, or give each process its own --pod-uid"
        )
    try:
        _describe(descriptor, paths)
        _clear(paths)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(path: Path) -> int | None:
    """Lock a file and keep it open; None: somebody else has it."""
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


def _describe(descriptor: int, paths: SocketPaths) -> None:
    """Say in the lock file who holds it and what to clear away after its death."""
    content = {"pid": os.getpid(), "sockets": [str(paths.registration), str(paths.dra)]}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(content).encode(), 0)


def _owner(lock: Path) -> str:
    pid = _description(lock).get("pid")
    return f" (pid {pid})" if isinstance(pid, int) else ""


def _description(lock: Path) -> dict[str, object]:
    with suppress(OSError, ValueError):
        content = json.loads(lock.read_bytes())
        if isinstance(content, dict):
            return content
    return {}


def _clear(paths: SocketPaths) -> None:
    for path in (paths.registration, paths.dra):
        if path.exists() and not _is_dead_socket(path):
            raise FatalError(
                f"{path} exists and no dead instance of this driver left it: another driver may use"
                " the same name; stop it, or remove the file"
            )
        _remove(path)
    living = {paths.registration, paths.dra}
    for lock in sorted(paths.dra.parent.glob(f"{LOCK_PREFIX}*.lock")):
        if lock != paths.lock:
            living |= _clear_instance(lock)
    for path in _left_by_pods(paths):
        if path not in living and _is_dead_socket(path):
            _remove(path)


def _clear_instance(lock: Path) -> set[Path]:
    """Remove what a dead instance left; return the sockets of a living one."""
    descriptor = _lock(lock)
    sockets = {Path(str(each)) for each in _listed(_description(lock).get("sockets"))}
    if descriptor is None:
        return sockets
    try:
        for path in sorted(sockets | {hidden_path(each) for each in sockets}):
            if _is_dead_socket(path):
                _remove(path)
        lock.unlink(missing_ok=True)
    finally:
        os.close(descriptor)
    return set()


def _left_by_pods(paths: SocketPaths) -> list[Path]:
    """Sockets named as this driver names them, whose lock file may be lost."""
    registration = re.compile(rf"{re.escape(paths.driver)}-{_POD_UID}-reg\.sock")
    dra = re.compile(rf"dra-{_POD_UID}\.sock")
    return sorted(
        path
        for folder, name in ((paths.registration.parent, registration), (paths.dra.parent, dra))
        for path in folder.iterdir()
        if name.fullmatch(path.name)
    )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_dead_socket(path: Path) -> bool:
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


def _remove(path: Path) -> None:
    if path.is_socket():
        _log.info("Removing the socket of a dead process", path=str(path))
        path.unlink(missing_ok=True)


def _inode(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino
