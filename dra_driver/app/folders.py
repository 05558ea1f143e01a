"""Whether the node's folders can be written, seen before the kubelet is told of anything."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from dra_driver import log
from dra_driver.adapters.durable import DurableFolder
from dra_driver.errors import AdapterError, FatalError
from dra_driver.plan.claim_marks import marker_file
from dra_driver.plan.naming import spec_prefix
from dra_driver.settings import Settings

_LOG = log.get(__name__)
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def check_folders(settings: Settings) -> None:
    """Make the folders of claims, and a file for a moment in each.

    One that is full is no reason to end: claims that leave make room.

    Raises:
        FatalError: one cannot be written; one sentence for each that cannot.
    """
    marks = Path(marker_file(str(settings.run_dir), "claim")).parent
    folders = (
        DurableFolder(settings.state_dir, setting="--state-dir"),
        DurableFolder(settings.cdi_root, setting="--cdi-root"),
        DurableFolder(settings.run_dir, setting="--run-dir"),
    )
    name = f"{spec_prefix(settings.driver_name)}start"
    problems = [text for folder in folders for text in _problems(partial(_try, folder, name))]
    problems = problems or list(_problems(partial(_make, marks, folders[-1])))
    if problems:
        raise FatalError("\n".join(f"cannot start: {text}" for text in problems))


def _try(folder: DurableFolder, name: str) -> None:
    # What a start that was killed left there goes first.
    folder.sweep(name)
    folder.staged(name, b"", lasting=False).close()


def _make(folder: Path, parent: DurableFolder) -> None:
    with parent.reported(f"make {folder.name} in"):
        folder.mkdir(exist_ok=True)


def _problems(trial: Callable[[], None]) -> Iterator[str]:
    try:
        trial()
    except AdapterError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in _FULL:
            _LOG.warning("A folder is full", error=str(error))
        else:
            yield str(error)
