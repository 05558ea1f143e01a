"""Files that cannot be understood are kept for people, out of the way of their successors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dra_driver.adapters.durable import DurableFolder

LONGEST_REASON = 200
"""Characters of what a log line tells of the damage."""

PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
"""What keeps a process from reading any file, not this one from being read."""


def set_aside(folder: DurableFolder, name: str) -> Path:
    """Give a file a free name that nobody reads it by, and give that path.

    Raises:
        AdapterError: the folder does not allow it.
    """
    number = 1
    with folder.reported(f"set aside {name} in"):
        while os.path.lexists(folder.path / f"{name}.damaged-{number}"):
            number += 1
        return (folder.path / name).rename(folder.path / f"{name}.damaged-{number}")
