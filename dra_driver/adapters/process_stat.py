"""What tells a process from a later one with the same pid."""

from __future__ import annotations

from pathlib import Path

_START_TIME = 19
"""Field 22 of /proc/<pid>/stat, counted from field 3: a program's name may hold anything."""

_ENDED = ("Z", "X", "x")


def start_time(proc: Path, pid: int) -> int | None:
    """Its start in clock ticks after boot; None: it has ended, if it was not waited for either."""
    try:
        # Read in scores while a container is frozen: pathlib would take longer than the kernel.
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_TIME or fields[0] in _ENDED:
        return None
    return int(fields[_START_TIME])
