"""What containers of shares see of MPS daemons: folders below <run-dir>/shares.

A share that sees the socket `control` alone has a folder with a hard link to it. One that sees the
daemon's whole folder has none of its own: its containers mount that folder, which stays the same
folder when the daemon is started anew.
"""

from __future__ import annotations

import os
import re
import stat
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
        self._shares = Path(share_folder(str(run_dir), "x")).parent
        self._lock = Lock()

    def pipe(self, gpu: GpuUuid) -> Path:
        return Path(pipe_folder(str(self._run_dir), gpu))

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
            if folder.is_dir():
                for each in folder.iterdir():
                    each.unlink(missing_ok=True)
                folder.rmdir()

    def exposed(self, gpu: GpuUuid) -> frozenset[str]:
        socket = self._socket(gpu)
        if socket is None:
            return frozenset()
        return frozenset(
            share for share in self._names() if _inode(self._folder(share) / _SOCKET) == socket
        )

    def known(self) -> frozenset[str]:
        """Shares that have a folder; also sweeps what a writer that died left in one."""
        with self._lock:
            names = self._names()
            for share in names:
                temporary = self._folder(share) / _TEMPORARY
                with run_dir_errors(f"remove {temporary}"):
                    temporary.unlink(missing_ok=True)
        return names

    def _link(self, gpu: GpuUuid, share: str) -> None:
        """A rename over the link that stands there: containers have the folder mounted."""
        folder = self._folder(share)
        public_folder(folder, below=self._run_dir)
        temporary = folder / _TEMPORARY
        with run_dir_errors(f"link the socket of GPU {gpu} into {folder}"):
            temporary.unlink(missing_ok=True)
            try:
                os.link(self.pipe(gpu) / _SOCKET, temporary)
                temporary.replace(folder / _SOCKET)
            except FileNotFoundError as error:
                raise MpsGone(f"the MPS control daemon of GPU {gpu} has just ended") from error
            finally:
                # Where both names are one socket already, a rename leaves both.
                temporary.unlink(missing_ok=True)

    def _socket(self, gpu: GpuUuid) -> tuple[int, int] | None:
        return _inode(self.pipe(gpu) / _SOCKET)

    def _names(self) -> frozenset[str]:
        with run_dir_errors(f"list {self._shares}"):
            try:
                return frozenset(
                    each.name for each in self._shares.iterdir() if _ID.match(each.name)
                )
            except FileNotFoundError:
                return frozenset()

    def _folder(self, share: str) -> Path:
        if not _ID.match(share):
            raise AdapterError(f"{share!r} is no id of a share", permanent=True)
        return Path(share_folder(str(self._run_dir), share))


def _inode(path: Path) -> tuple[int, int] | None:
    """Which socket this is; None where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISSOCK(status.st_mode) else None
