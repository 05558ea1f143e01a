"""Folders and sockets that a node's plugin uses."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dra_driver.errors import SettingsError
from dra_driver.kubelet.paths import SocketPaths, socket_paths
from dra_driver.kubelet.probe import probe_sockets
from dra_driver.model.doctor import Finding, ok, problem, warning
from dra_driver.plan.naming import cdi_kind, spec_prefix
from dra_driver.settings import Settings

_CONNECT_S = 1.0
_OF_MEMORY = frozenset({"tmpfs", "ramfs"})
_CDI_ENDINGS = frozenset({".json", ".yaml", ".yml"})
_OCTAL = re.compile(r"\\([0-7]{3})")


def state_folder(settings: Settings) -> Iterator[Finding]:
    folder, subject = settings.state_dir, "state folder"
    kind = filesystem(folder)
    yield from _usable(subject, folder, "--state-dir")
    if kind in _OF_MEMORY:
        mend = "give --state-dir a folder on a disk"
        yield problem(subject, f"{folder} is on {kind}: claims are forgotten at a reboot", mend)
    else:
        yield ok(subject, f"{folder} is on {kind}")


def run_folder(settings: Settings) -> Iterator[Finding]:
    folder, subject = settings.run_dir, "run folder"
    kind = filesystem(folder)
    yield from _usable(subject, folder, "--run-dir")
    if kind in _OF_MEMORY:
        yield ok(subject, f"{folder} is on {kind}")
    else:
        mend = "give --run-dir a folder below /run"
        yield warning(subject, f"{folder} is on {kind}: preparing a share waits for its disk", mend)
    parts = [each for each in (folder / "mps", folder / "shares") if each.exists()]
    if len({each.stat().st_dev for each in (folder, *parts) if each.exists()}) > 1:
        text = f"{folder} spans several mounts, and hard links to MPS sockets cannot cross them"
        yield problem(subject, text, f"mount {folder} as a whole")


def cdi_folder(settings: Settings) -> Iterator[Finding]:
    subject, folder = "CDI folder", settings.cdi_root
    yield from _usable(subject, folder, "--cdi-root")
    folders = dict.fromkeys((folder, settings.host_root / "etc/cdi"))
    specs = [file for each in folders for file in _files(each) if file.suffix in _CDI_ENDINGS]
    troubles = [trouble for file in specs for trouble in _spec_trouble(file, settings)]
    yield from troubles
    if not troubles:
        yield ok(subject, f"{folder} has no spec that is in the way of ours")


def kubelet_folders(settings: Settings) -> Iterator[Finding]:
    subject = "kubelet folders"
    for folder, flag in (
        (settings.kubelet_registrar_directory_path, "--kubelet-registrar-directory-path"),
        (settings.kubelet_plugins_directory_path, "--kubelet-plugins-directory-path"),
    ):
        if folder.is_dir():
            yield from _usable(subject, folder, flag)
        else:
            mend = f"start the kubelet, or give {flag} what its --root-dir has"
            yield problem(subject, f"{folder} does not exist", mend)


def plugin_sockets(settings: Settings, *, timeout_s: float) -> Finding:
    """Whether a plugin answers; whichever pod's it is, where `--pod-uid` tells none."""
    subject = "plugin"
    try:
        paths = _sockets(settings, settings.pod_uid)
    except SettingsError as error:
        return problem(subject, str(error))
    running = [paths] if paths.registration.exists() else list(_others(settings))
    if not running:
        return warning(
            subject,
            f"no registration socket of {settings.driver_name} in "
            f"{settings.kubelet_registrar_directory_path}",
            "start gpuslice plugin on this node",
        )
    failures = [text for each in running if (text := probe_sockets(each, timeout_s=timeout_s))]
    if len(failures) == len(running):
        return problem(subject, "; ".join(failures), "see the log of gpuslice plugin")
    return ok(subject, f"answers on {len(running) - len(failures)} registration sockets")


def pod_resources(settings: Settings) -> Finding:
    path, subject = settings.pod_resources_socket, "pod resources"
    if not path.exists():
        text = f"{path} does not exist: the memory of shares cannot be told apart by pods"
        return warning(subject, text, "start the kubelet, or give --pod-resources-socket")
    try:
        connect(path)
    except PermissionError:
        return warning(subject, f"{path} is not for this user to open", "run the doctor as root")
    except OSError as error:
        return problem(subject, f"{path} does not answer: {error}", "start the kubelet")
    return ok(subject, f"{path} answers")


def connect(path: Path) -> None:
    """Connect to a stream socket and leave; raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        client.connect(str(path))


def filesystem(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Type of the file system that a folder is on, or will be made on; "unknown" where unread."""
    try:
        lines = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    place, best, kind = Path(os.path.realpath(folder)), -1, "unknown"
    for line in lines:
        left, _, right = line.partition(" - ")
        point = Path(_OCTAL.sub(lambda match: chr(int(match[1], 8)), left.split()[4]))
        # Of mounts on one point the last one is seen.
        if place.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), right.split()[0]
    return kind


def _usable(subject: str, folder: Path, flag: str) -> Iterator[Finding]:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        yield problem(subject, f"{there} is no folder", f"remove it, or give another {flag}")
    elif not os.access(there, os.W_OK | os.X_OK):
        who = "" if os.geteuid() == 0 else " by this user"
        yield (problem if os.geteuid() == 0 else warning)(
            subject,
            f"{there} cannot be written{who}",
            f"mount it read-write, or give another {flag}"
            if os.geteuid() == 0
            else "run the doctor as root to see what the plugin sees",
        )
    elif there != folder:
        yield ok(subject, f"{folder} does not exist yet and will be made")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _spec_trouble(file: Path, settings: Settings) -> Iterator[Finding]:
    subject, own = "CDI folder", file.name.startswith(spec_prefix(settings.driver_name))
    try:
        spec: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        text = f"{file} cannot be read: {' '.join(str(error).split())}"
        mend = "remove it; the plugin writes it anew when it starts" if own else "mend or remove it"
        yield (problem if own else warning)(subject, text, mend)
        return
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if own and kind != cdi_kind(settings.driver_name):
        mend = "remove it; the plugin writes it anew when it starts"
        yield problem(subject, f"{file} has the name of a spec of ours and is none", mend)
    elif not own and kind == cdi_kind(settings.driver_name):
        text = f"{file} has devices of our kind {kind} and is not ours"
        yield problem(subject, text, "remove it, or give another --driver-name")


def _sockets(settings: Settings, pod_uid: str) -> SocketPaths:
    return socket_paths(
        driver=settings.driver_name,
        pod_uid=pod_uid,
        registrar_directory=settings.kubelet_registrar_directory_path,
        plugins_directory=settings.kubelet_plugins_directory_path,
    )


def _others(settings: Settings) -> Iterator[SocketPaths]:
    """Sockets of plugins that run in pods of other UIDs, by the names that fit whole."""
    driver = settings.driver_name
    for file in _files(settings.kubelet_registrar_directory_path):
        name = file.name
        if name.startswith(f"{driver}-") and name.endswith("-reg.sock"):
            uid = name.removeprefix(f"{driver}-").removesuffix("-reg.sock").removesuffix("reg.sock")
            yield _sockets(settings, uid)
