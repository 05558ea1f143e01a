"""Building the programs of dra_driver/native."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.arch.sources import ROOT


def build(folder: Path) -> dict[str, Path]:
    """Build all of them; paths by the name of the program."""
    built = subprocess.run(
        [ROOT / "hack/native", folder], check=True, capture_output=True, text=True
    )
    return {Path(line).name: Path(line) for line in built.stdout.splitlines()}
