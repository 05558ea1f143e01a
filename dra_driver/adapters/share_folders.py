"""What containers of shares see of MPS daemons: folders below <run-dir>/shares.

A share that sees the socket `control` alone has a folder with a hard link to it. One that sees the
daemon's whole folder has none of its own: its containers mount that folder, which stays the same
folder when the daemon is started anew.
"""

# Every share waits for this, so paths are text: pathlib takes longer than the system calls behind.
# ruff: noqa: PTH105, PTH106, PTH108, PTH208

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import assert_never

from dra_driver.adapters.mps_folders import public_folder, run_dir_errors
from dra_driver.errors import AdapterError, MpsGone
from dra_driver.model.device import GpuUuid
from dra_driver.model.share import Expose
from dra_driver.plan.mps_paths import pipe_folder, share_folder

_SOCKET = "control"
_TEMPORARY = ".control.tmp"
_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")


class RunFolders:
    """`ShareFolders` of one node; one process at a time writes them.

    With Expose.FOLDER, `expose` removes an own folder that the share had; then neither `exposed`
    nor `known` names it.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._root = str(run_dir)
        self._shares = share_folder(self._root, "x").rpartition("/")[0]
        self._lock = Lock()

    def pipe(self, gpu: GpuUuid) -> Path:
        return Path(pipe_folder(self._root, gpu))

    def expose(self, gpu: GpuUuid, share: str, expose: Expose) -> None:
        if self._socket(gpu) is None:
            raise MpsGone(f"the MPS control daemon of GPU {gpu} has no socket in {self.pipe(gpu)}")
        match expose:
            case Expose.CONTROL:
                with self._lock:
                    self._link(gpu, share)
            case Expose.FOLDER:
                self.hide(share)
            case _ as never:
                assert_never(never)

    def hide(self, share: str) -> None:
        folder = self._folder(share)
        with self._lock, run_dir_errors(f"remove the folder {folder}"):
            try:
                names = os.listdir(folder)
            except (FileNotFoundError, NotADirectoryError):
                return
            for each in names:
                _unlink(f"{folder}/{each}")
            os.rmdir(folder)

    def exposed(self, gpu: GpuUuid) -> frozenset[str]:
        socket = self._socket(gpu)
        if socket is None:
            return frozenset()
        return frozenset(
            share
            for share in self._names()
            if _inode(f"{self._shares}/{share}/{_SOCKET}") == socket
        )

    def known(self) -> frozenset[str]:
        """Shares that have a folder; also sweeps what a writer that died left in one."""
        with self._lock:
            names = self._names()
            for share in names:
                temporary = f"{self._folder(share)}/{_TEMPORARY}"
                with run_dir_errors(f"remove {temporary}"):
                    _unlink(temporary)
        return names

    def _link(self, gpu: GpuUuid, share: str) -> None:
        """A rename over the link that stands there: containers have the folder mounted."""
        folder = self._folder(share)
        public_folder(Path(folder), below=self._run_dir)
        temporary = f"{folder}/{_TEMPORARY}"
        with run_dir_errors(f"link the socket of GPU {gpu} into {folder}"):
            _unlink(temporary)
            try:
                os.link(f"{pipe_folder(self._root, gpu)}/{_SOCKET}", temporary)
                os.replace(temporary, f"{folder}/{_SOCKET}")
            except FileNotFoundError as error:
                raise MpsGone(f"the MPS control daemon of GPU {gpu} has just ended") from error
            finally:
                # Where both names are one socket already, a rename leaves both.
                _unlink(temporary)

    def _socket(self, gpu: GpuUuid) -> tuple[int, int] | None:
        return _inode(f"{pipe_folder(self._root, gpu)}/{_SOCKET}")

    def _names(self) -> frozenset[str]:
        with run_dir_errors(f"list {self._shares}"):
            try:
                return frozenset(filter(_ID.match, os.listdir(self._shares)))
            except FileNotFoundError:
                return frozenset()

    def _folder(self, share: str) -> str:
        if not _ID.match(share):
            raise AdapterError(f"{share!r} is no id of a share", permanent=True)
        return share_folder(self._root, share)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _inode(path: str) -> tuple[int, int] | None:
    """Which socket this is; None where there is none."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None
