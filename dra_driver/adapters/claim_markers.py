"""Marks of claims: empty files in `<run-dir>/claims`, which CDI specs mount into containers."""

# A claim passes here twice, so paths are text and `os` does the work.
# ruff: noqa: PTH108

from __future__ import annotations

import os
import re
from pathlib import Path

from dra_driver.adapters.mps_folders import run_dir_error, run_dir_errors
from dra_driver.errors import AdapterError
from dra_driver.plan.claim_marks import marker_file

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MODE = 0o444


class MarkerFiles:
    """`ClaimMarkers` in the run folder; lost with it at a reboot, like all containers."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = str(run_dir)

    def place(self, claim_uid: str) -> None:
        path = self._path(claim_uid)
        try:
            self._make(path)
        except FileNotFoundError:
            with run_dir_errors(f"make {path}"):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                self._make(path)
        except OSError as error:
            raise run_dir_error(f"make {path}", error) from error

    def holds(self, claim_uid: str) -> bool:
        return Path(self._path(claim_uid)).is_file()

    def remove(self, claim_uid: str) -> None:
        path = self._path(claim_uid)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise run_dir_error(f"remove {path}", error) from error

    def claims(self) -> tuple[str, ...]:
        folder = Path(self._path("x")).parent
        with run_dir_errors(f"list {folder}"):
            if not folder.is_dir():
                return ()
            return tuple(sorted(each.name for each in folder.iterdir() if each.is_file()))

    def _make(self, path: str) -> None:
        # A file that stands is left as it is: containers have this very one mounted.
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE))

    def _path(self, claim_uid: str) -> str:
        if not _UID.fullmatch(claim_uid):
            raise AdapterError(f"{claim_uid!r} is no UID of a claim", permanent=True)
        return marker_file(self._run_dir, claim_uid)
