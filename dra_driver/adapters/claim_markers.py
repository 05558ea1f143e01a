"""Marks of claims: empty files in `<run-dir>/claims`, which CDI specs mount into containers."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dra_driver.adapters.mps_folders import run_dir_errors
from dra_driver.errors import AdapterError
from dra_driver.plan.claim_marks import marker_file

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MODE = 0o444


class MarkerFiles:
    """`ClaimMarkers` in the run folder; lost with it at a reboot, like all containers."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def place(self, claim_uid: str) -> None:
        path = self._path(claim_uid)
        with run_dir_errors(f"make {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            # A file that stands is left as it is: containers have this very one mounted.
            os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE))

    def holds(self, claim_uid: str) -> bool:
        return self._path(claim_uid).is_file()

    def remove(self, claim_uid: str) -> None:
        path = self._path(claim_uid)
        with run_dir_errors(f"remove {path}"):
            path.unlink(missing_ok=True)

    def claims(self) -> tuple[str, ...]:
        folder = self._path("x").parent
        with run_dir_errors(f"list {folder}"):
            if not folder.is_dir():
                return ()
            return tuple(sorted(each.name for each in folder.iterdir() if each.is_file()))

    def _path(self, claim_uid: str) -> Path:
        if not _UID.fullmatch(claim_uid):
            raise AdapterError(f"{claim_uid!r} is no UID of a claim", permanent=True)
        return Path(marker_file(str(self._run_dir), claim_uid))
