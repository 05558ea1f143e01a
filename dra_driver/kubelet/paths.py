"""Names of this process's sockets."""

from __future__ import annotations

import os
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dra_driver.errors import SettingsError
from dra_driver.sockets import PATH_MAX_BYTES

LOCK_PREFIX = "instance"


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPaths:
    """Where one instance of the driver listens.

    Attributes:
        driver: the driver's name.
        registration: in the folder that the kubelet watches.
        dra: the endpoint that registration tells.
        lock: held by the instance as long as it lives; beside `dra`.
    """

    driver: str
    registration: Path
    dra: Path
    lock: Path


def socket_paths(
    *, driver: str, pod_uid: str, registrar_directory: Path, plugins_directory: Path
) -> SocketPaths:
    """Name the sockets of an instance.

    `pod_uid` tells apart the instances of a rolling update; empty: there is only ever one.

    Raises:
        SettingsError: a folder is not absolute, a name cannot be part of a file name, or even the
            shortest name makes a path too long for a socket.
    """
    _require_absolute("--kubelet-registrar-directory-path", registrar_directory)
    _require_absolute("--kubelet-plugins-directory-path", plugins_directory)
    _require_name("--driver-name", driver)
    if pod_uid:
        _require_name("--pod-uid", pod_uid)
    folder = plugins_directory / driver
    instance = f"-{pod_uid}" if pod_uid else ""
    short = f"-{_digest(pod_uid)}" if pod_uid else ""
    shortest = _digest(f"{driver}\0{pod_uid}")
    return SocketPaths(
        driver=driver,
        registration=_fitting(
            "--kubelet-registrar-directory-path",
            registrar_directory / f"{driver}{instance}-reg.sock",
            registrar_directory / f"{driver}{short}-reg.sock",
            registrar_directory / f"dra-{shortest}-reg.sock",
        ),
        dra=_fitting(
            "--kubelet-plugins-directory-path",
            folder / f"dra{instance}.sock",
            folder / f"dra{short}.sock",
        ),
        lock=folder / f"{LOCK_PREFIX}{instance}.lock",
    )


def _require_absolute(flag: str, folder: Path) -> None:
    if not folder.is_absolute():
        raise SettingsError(
            f"{flag} is {str(folder)!r}: it has to be an absolute path, because the kubelet dials"
            " sockets by it"
        )


def _require_name(flag: str, name: str) -> None:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise SettingsError(f"{flag} is {name!r}, which cannot be part of a socket's name")


def _fitting(flag: str, *candidates: Path) -> Path:
    for path in candidates:
        if len(os.fsencode(path)) <= PATH_MAX_BYTES:
            return path
    raise SettingsError(
        f"{flag} is too long: its socket would be {candidates[-1]}"
        f" ({len(os.fsencode(candidates[-1]))} bytes), and a socket's path has at most"
        f" {PATH_MAX_BYTES} bytes; use a shorter folder"
    )


def _digest(text: str) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()[:8]).decode().rstrip("=")
