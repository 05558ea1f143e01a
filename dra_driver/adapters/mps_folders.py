"""Folders and files of MPS below the run folder, open to every user whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE

from dra_driver.errors import AdapterError

_OPEN = 0o755


def public_folder(path: Path, *, below: Path) -> None:
    """Make a folder that all users pass, with all folders from `below` on.

    The MPS server and its clients run as the users of pods, and may own none of them.

    Raises:
        AdapterError: it cannot be made.
    """
    with run_dir_errors(f"make the folder {path}"):
        below.mkdir(parents=True, exist_ok=True)
        _open(str(below))
        part = str(below)
        for step in path.relative_to(below).parts:
            part = f"{part}/{step}"
            with suppress(FileExistsError):
                os.mkdir(part)  # noqa: PTH102 - every share passes here
            _open(part)


@contextmanager
def run_dir_errors(action: str) -> Iterator[None]:
    """Turn failures of the operating system into an AdapterError."""
    try:
        yield
    except OSError as error:
        raise run_dir_error(action, error) from error


def run_dir_error(action: str, error: OSError) -> AdapterError:
    """What the operating system refused."""
    return AdapterError(f"cannot {action} (--run-dir): {error.strerror}")


def tail(path: Path, length: int) -> str:
    """The end of a log, for messages; empty where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - length))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def set_aside(path: Path) -> None:
    """Keep a log under another name, over the one kept before, so that a new one starts."""
    with run_dir_errors(f"set aside {path}"):
        if path.exists():
            path.replace(path.with_name(f"{path.name}.before"))


def cut(path: Path, *, above: int) -> None:
    """Empty a log that somebody appends to once it is longer than this."""
    with run_dir_errors(f"shorten {path}"):
        if path.exists() and path.stat().st_size > above:
            os.truncate(path, 0)


def _open(folder: str) -> None:
    mode = S_IMODE(os.stat(folder).st_mode)  # noqa: PTH116
    if mode & _OPEN != _OPEN:
        os.chmod(folder, mode | _OPEN)  # noqa: PTH101
