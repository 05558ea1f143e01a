"""What is made once for a test session, however many workers it runs in."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(request: pytest.FixtureRequest, name: str, make: Callable[[Path], None]) -> Path:
    """Give a file of the session, which ``make`` writes for the first who asks; others wait.

    What was not written to its end is made anew by the next.
    """
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    folder = factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        # Each worker has a folder of its own in that of the session.
        folder = folder.parent
    target = folder / name
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            new = folder / f"new.{name}"
            make(new)
            new.rename(target)
    return target
