"""Compiles the stub of libcuda into the root of a driver."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_name("cuda_stub.c")
_FOLDER = "usr/lib/x86_64-linux-gnu"


class CudaStub:
    """A driver's root with a libcuda whose behaviour is set by a word; see the source."""

    def __init__(self, folder: Path) -> None:
        self.driver_root = folder / "driver"
        self._behaviour = folder / "behaviour"
        library = self.driver_root / _FOLDER / "libcuda.so.570.133.20"
        library.parent.mkdir(parents=True)
        (library.parent / "libcuda.so.1").symlink_to(library.name)
        flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
        path = f'-DBEHAVIOUR="{self._behaviour}"'
        subprocess.run(["gcc", *flags, path, "-o", library, _SOURCE], check=True)

    def behave(self, word: str) -> None:
        self._behaviour.write_text(word)
