"""A lock file that stays open for as long as somebody needs it.

Opening one for each lock is two system calls and a pathname for every claim, many times over. A
lock belongs to what is open, so a lock file that was removed meanwhile must be opened anew, or two
processes would hold locks of two files.
"""

from __future__ import annotations

import os
from pathlib import Path


class OpenFile:
    """A descriptor; closed, and its locks freed, with the last reference to it."""

    __slots__ = ("descriptor",)

    def __init__(self, path: str) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def __del__(self) -> None:
        # Where opening failed there is nothing to close.
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def stale(self) -> bool:
        """Whether the file has been removed: new locks go to another one."""
        return os.fstat(self.descriptor).st_nlink == 0


class LockFile:
    """Thread-safe; opened, and its folder made, when first needed. All raise OSError."""

    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._path = str(path)
        self._file: OpenFile | None = None

    def open(self) -> OpenFile:
        """Give the file that stands under the name now; hold on to it while its lock is held."""
        file = self._file
        if file is None or file.stale():
            file = self._file = self._opened()
        return file

    def _opened(self) -> OpenFile:
        try:
            return OpenFile(self._path)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return OpenFile(self._path)
