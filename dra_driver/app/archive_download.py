"""An archive of a node, brought to this machine: whole, or not at all."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from dra_driver.app.node_plugins import NodePlugin, NodePlugins, Progress, parse_object
from dra_driver.app.node_side import facts_of
from dra_driver.errors import FatalError, SettingsError


class NewFile:
    """A file that appears under its name when it is complete; nobody else can read it.

    A checkpoint holds the memory of a container, and its secrets.
    """

    def __init__(self, path: Path) -> None:
        """Raises SettingsError: it is there already, or its folder cannot be written."""
        self.path = path
        self._staged = path.with_name(f".{path.name}.{os.getpid()}.part")
        if path.exists():
            raise SettingsError(f"--output is {str(path)!r}: it exists; name a new file")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.file: IO[bytes] = os.fdopen(os.open(self._staged, flags, 0o600), "wb")
        except OSError as error:
            raise SettingsError(
                f"--output is {str(path)!r}: cannot write there: {error.strerror}"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind, unless `finish` was called."""
        with suppress(OSError):
            self.file.close()
        with suppress(FileNotFoundError):
            self._staged.unlink()

    def finish(self) -> None:
        """Let it appear; raises FatalError."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
            self._staged.replace(self.path)
        except OSError as error:
            raise FatalError(f"cannot write {self.path}: {error.strerror}") from error


def download(
    plugins: NodePlugins, plugin: NodePlugin, archive: str, target: NewFile, progress: Progress
) -> int:
    """Copy an archive of a node; gives its size in bytes.

    Raises:
        FatalError: it cannot be read there or written here, or did not arrive as it is.
    """
    found = plugins.run(plugin, ("archive", "facts", archive))
    size = facts_of(parse_object(found.output)).size_bytes
    digest, done = hashlib.sha256(), 0

    def keep(content: bytes) -> None:
        nonlocal done
        digest.update(content)
        done += len(content)
        try:
            target.file.write(content)
        except OSError as error:
            raise FatalError(f"cannot write {target.path}: {error.strerror}") from error
        progress.amount(done, size)

    progress.step(f"fetching {size} bytes from node {plugin.node}")
    ended = plugins.run(plugin, ("archive", "send", archive), sink=keep)
    if done != size or digest.hexdigest() not in ended.errors.split():
        raise FatalError(
            f"{archive} did not arrive as it is on node {plugin.node}: {done} of {size} bytes; try"
            " again, it is still there"
        )
    target.finish()
    return size
