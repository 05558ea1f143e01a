"""Mounts as /proc/<pid>/mountinfo lists them. Source: proc_pid_mountinfo(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

_ESCAPED = re.compile(r"\\([0-7]{3})")
_FIELDS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One mount.

    Attributes:
        device: "major:minor" of the file system.
        root: the folder of that file system that is mounted.
        point: where, below the process's root.
    """

    device: str
    root: str
    point: str


def mounts(text: str, *, device: str | None = None) -> Iterator[Mount]:
    """Mounts in the kernel's order: of two at one point the later hides the earlier.

    Args:
        text: of the file.
        device: give those of this file system alone.
    """
    for line in text.split("\n"):
        fields = line.split(" ")
        if len(fields) >= _FIELDS and device in (None, fields[2]):
            yield Mount(device=fields[2], root=_unescaped(fields[3]), point=_unescaped(fields[4]))


def place_of(path: str, text: str) -> Mount | None:
    """Where a folder lies: its file system, and its path in that as `root`.

    Args:
        path: absolute, without links.
        text: mountinfo of a process that sees it there.
    """
    wanted = PurePosixPath(path)
    found: Mount | None = None
    for mount in mounts(text):
        inside = wanted.is_relative_to(mount.point)
        if inside and (found is None or len(mount.point) >= len(found.point)):
            found = mount
    if found is None:
        return None
    root = PurePosixPath(found.root) / wanted.relative_to(found.point)
    return Mount(device=found.device, root=str(root), point=path)


def _unescaped(field: str) -> str:
    r"""Give "a b" for "a\040b": the kernel escapes blanks, tabs, newlines and backslashes."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), field)
