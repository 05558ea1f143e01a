"""The program gpuslice-hook on the host, from the plugin's image."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final
from uuid import uuid4

from dra_driver.adapters.host_files import (
    HostFile,
    ensure_folder,
    folder_exists,
    read_file,
    replace_file,
)
from dra_driver.adapters.process import run_program
from dra_driver.errors import AdapterError
from dra_driver.plan.criu_config import PROGRAM

TARGET: Final = PurePosixPath("/opt/gpuslice/bin") / PROGRAM
"""On the host."""
DEFAULT_SOCKET: Final = "/run/gpuslice/hook.sock"
"""Where the program looks for the driver unless the link beside it says otherwise."""
LONGEST_SOCKET: Final = 107
"""Bytes of a Unix socket's path."""

_MODE = 0o755
_TIMEOUT_S = 5.0


class HookFiles:
    """The program, and beside it the link that tells it of another socket.

    CRIU gives its action scripts no arguments, and the environment is not to be trusted: hence the
    link.

    Args:
        host_root: where the host's / is seen.
        source: the program in the image; None: looked for on PATH.
        target: its path on the host; no other user may be able to change its folders.
        socket: the driver's raw socket, as the host sees it.
        owner: uid that owns what root runs.
    """

    def __init__(
        self,
        *,
        host_root: Path,
        source: Path | None = None,
        target: PurePosixPath = TARGET,
        socket: str = DEFAULT_SOCKET,
        owner: int = 0,
    ) -> None:
        if not target.is_absolute() or len(target.parts) < 3 or ".." in target.parts:  # noqa: PLR2004
            raise AdapterError(f"{target} is no place for {PROGRAM}: name a file in a folder")
        if not socket.startswith("/") or len(os.fsencode(socket)) > LONGEST_SOCKET:
            raise AdapterError(
                f"socket {socket!r} must be an absolute path of at most {LONGEST_SOCKET} bytes"
            )
        self.target = str(target)
        self._root = host_root
        self._source = source or Path(shutil.which(PROGRAM) or PROGRAM)
        self._path = host_root / target.relative_to("/")
        self._link = self._path.with_name(f"{self._path.name}.socket")
        self._socket = socket
        self._owner = owner

    def install(self) -> None:
        """Put the program there, or renew it, and prove that it runs; repeatable.

        Raises:
            AdapterError: it cannot be put there, or does not run.
        """
        source = self._from_image()
        ensure_folder(self._root, self._path.parent, owner=self._owner)
        self._set_link()
        if self._differs(source) is not None:
            program = HostFile(content=source, mode=_MODE, uid=self._owner, gid=self._owner)
            replace_file(self._path, program)
        reason = self.problem()
        if reason is not None:
            raise AdapterError(reason)

    def problem(self) -> str | None:
        """Why the program cannot be relied on; None where it is the image's, runs, and is safe.

        Raises:
            AdapterError: the program in the image cannot be read.
        """
        source = self._from_image()
        try:
            if not folder_exists(self._root, self._path.parent, owner=self._owner):
                return f"{self.target} is not installed on the host"
            return self._differs(source) or self._link_differs() or self._fails()
        except AdapterError as error:
            return str(error)

    def exists(self) -> bool:
        """Whether anything but the image's own program stands in its place; cheap."""
        return os.path.lexists(self._path) and self._path != self._source

    def uninstall(self) -> None:
        """Remove the program, the link, and their folders as far as they are empty; repeatable.

        To be called once no CDI spec and no configuration of CRIU names the program: containers
        whose hook is missing do not start.

        Raises:
            AdapterError: it cannot be removed.
        """
        there = folder_exists(self._root, self._path.parent, owner=self._owner)
        if self._path == self._source or not there:
            return  # it is the image's own, or gone
        for path in (self._path, self._link):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise AdapterError(f"cannot remove {path}: {error.strerror}") from error
        # The first folder, such as /opt, is the host's.
        for folder in list(self._path.relative_to(self._root).parents)[:-2]:
            with suppress(OSError):  # somebody else's files are in it
                (self._root / folder).rmdir()

    def _from_image(self) -> bytes:
        program = read_file(self._source)
        if program is None:
            raise AdapterError(
                f"{self._source} is missing: build it by hack/native, and have it on PATH"
            )
        return program.content

    def _differs(self, source: bytes) -> str | None:
        program = read_file(self._path)
        if program is None:
            return f"{self.target} is not installed on the host"
        if program.content != source:
            return f"{self.target} on the host is another program or version"
        if program.uid != self._owner or program.mode != _MODE:
            return f"{self.target} on the host has owner {program.uid} and mode {program.mode:04o}"
        return None

    def _link_differs(self) -> str | None:
        linked = self._linked()
        if (linked or DEFAULT_SOCKET) == self._socket:
            return None
        return f"{self.target} asks at {linked or DEFAULT_SOCKET}, not at {self._socket}"

    def _linked(self) -> str | None:
        try:
            return str(self._link.readlink())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise AdapterError(f"{self._link} is no link: {error.strerror}; remove it") from error

    def _set_link(self) -> None:
        if self._link_differs() is None:
            return
        staged = self._link.with_name(f".{self._link.name}.{uuid4().hex}.tmp")
        try:
            if self._socket == DEFAULT_SOCKET:
                self._link.unlink()
                return
            staged.symlink_to(self._socket)
            staged.replace(self._link)
        except OSError as error:
            with suppress(OSError):
                staged.unlink()
            raise AdapterError(f"cannot write {self._link}: {error.strerror}") from error

    def _fails(self) -> str | None:
        arguments = (str(self._path), "--version")
        ended = run_program(arguments, name=PROGRAM, environment={}, timeout_s=_TIMEOUT_S)
        if ended.status == 0 and ended.output.startswith(f"{PROGRAM} "):
            return None
        said = (ended.errors or ended.output).strip()[:200]
        return f"{self.target} does not run on this node (status {ended.status}): {said}"
