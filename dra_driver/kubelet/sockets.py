"""Who owns the sockets that the kubelet dials, and what dead processes left behind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dra_driver.errors import FatalError
from dra_driver.kubelet.paths import LOCK_PREFIX, SocketPaths
from dra_driver.sockets import hidden_path, is_dead_socket, lock_file, remove_socket

_POD_UID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_FOLDER_MODE = 0o750


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


def _become(paths: SocketPaths) -> int:
    """Take the instance's lock, then clear its place; the lock's descriptor."""
    for folder in (paths.dra.parent, paths.registration.parent):
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    descriptor = lock_file(paths.lock)
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
        if path.exists() and not is_dead_socket(path):
            raise FatalError(
                f"{path} exists and no dead instance of this driver left it: another driver may use"
                " the same name; stop it, or remove the file"
            )
        remove_socket(path)
    living = {paths.registration, paths.dra}
    for lock in sorted(paths.dra.parent.glob(f"{LOCK_PREFIX}*.lock")):
        if lock != paths.lock:
            living |= _clear_instance(lock)
    for path in _left_by_pods(paths):
        if path not in living and is_dead_socket(path):
            remove_socket(path)


def _clear_instance(lock: Path) -> set[Path]:
    """Remove what a dead instance left; return the sockets of a living one."""
    descriptor = lock_file(lock)
    sockets = {Path(str(each)) for each in _listed(_description(lock).get("sockets"))}
    if descriptor is None:
        return sockets
    try:
        for path in sorted(sockets | {hidden_path(each) for each in sockets}):
            if is_dead_socket(path):
                remove_socket(path)
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
