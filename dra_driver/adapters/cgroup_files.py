"""Groups of a process on the file systems of cgroups, of version 1, 2 or both.

A process's /proc/<pid>/cgroup names its groups from the root of the reader's cgroup namespace, with
".." where they are beside it: of such a path the beginning is looked for on the file system, and
what is found counts only if the process is in it.

Sources: cgroups(7), cgroup_namespaces(7).
"""

# Calls of the checkpoint hook pass here several times, with a container that is frozen meanwhile:
# pathlib takes longer than the system calls behind it.
# ruff: noqa: PTH112, PTH116, PTH123

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_DEEPEST = 4
"""Levels of groups that may stand above what a path names."""
_NOTHING_BELOW = 2
"""Links of a folder without others in it: its own, and its name in the one above."""


def groups_of(cgroups: Path, *, pid: int, text: str, controller: str = "") -> Iterator[Path]:
    """Groups of a process that are found.

    Args:
        cgroups: where the host's /sys/fs/cgroup is seen.
        pid: of the process.
        text: its /proc/<pid>/cgroup.
        controller: give that of version 2 and of version 1 with this one; empty: give all.
    """
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        kinds = names.split(",")
        if names and controller and controller not in kinds:
            continue
        places = (names, *kinds) if names else ("", "unified")
        for place in dict.fromkeys(places):
            group = _located(f"{cgroups}/{place}".rstrip("/"), path, pid)
            if group is not None:
                yield Path(group)
                break


def members(group: Path) -> set[int]:
    """Processes of a group and of all below it."""
    try:
        alone = os.stat(group).st_nlink == _NOTHING_BELOW
    except OSError:
        return set()
    if alone:
        return _direct(str(group))
    found: set[int] = set()
    for folder, _, _ in os.walk(group):
        found |= _direct(folder)
    return found


def read_text(path: str) -> str | None:
    """A file of the kernel, stripped; None where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode(errors="replace").strip()
    except OSError:
        return None


def _located(base: str, path: str, pid: int) -> str | None:
    names = [name for name in path.removesuffix(" (deleted)").split("/") if name]
    known = [name for name in names if name != ".."]
    if len(known) == len(names):
        group = "/".join((base, *names))
        return group if pid in _direct(group) else None
    if not os.path.isdir(base):
        return None
    for depth in range(_DEEPEST + 1):
        pattern = "/".join(["*"] * depth + known)
        for found in sorted(Path(base).glob(pattern)) if pattern else [Path(base)]:
            if pid in _direct(str(found)):
                return str(found)
    return None


def _direct(group: str) -> set[int]:
    text = read_text(f"{group}/cgroup.procs") or ""
    return {int(pid) for pid in text.split() if pid.isdigit()}
