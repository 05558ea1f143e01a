"""Arenas of the C library, counted by itself in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_THREADS = 6
_PROGRAM = """
import ctypes, sys
from threading import Barrier, Thread

from dra_driver.adapters.memory import share_arenas

libc = ctypes.CDLL(None)
libc.fopen.restype = libc.malloc.restype = ctypes.c_void_p
if sys.argv[2] == "shared":
    share_arenas()
met = Barrier({threads} + 1)


def work():
    libc.malloc(1000)
    met.wait()
    met.wait()


threads = [Thread(target=work) for _ in range({threads})]
for each in threads:
    each.start()
met.wait()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
met.wait()
for each in threads:
    each.join()
"""


def _arenas(folder: Path, how: str) -> int:
    told = folder / how
    command = [sys.executable, "-c", _PROGRAM.format(threads=_THREADS), str(told), how]
    subprocess.run(command, check=True, timeout=60)
    return told.read_text().count("<heap ")


def test_threads_share_two_arenas_where_they_are_told_to(tmp_path: Path) -> None:
    assert _arenas(tmp_path, "own") > 2
    assert _arenas(tmp_path, "shared") == 2
