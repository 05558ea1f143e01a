"""Processes whose CUDA state is a file: see `state.h` for what decides it, and for faults.

Of use without Python too: with the folder of state fixed as they are built, `libcuda.so.1` serves
the driver below a driver root, and `cuda-checkpoint` on PATH serves CRIU's plugin, which the
environment variable CRIU_FAULT=138 makes go on without a GPU. Both see the same state.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dra_driver.adapters.process_stat import start_time
from dra_driver.model.cuda import CudaState, ProcessRef

_HERE = Path(__file__).parent
_LIBRARY = "usr/lib/x86_64-linux-gnu/libcuda.so.1"
_FLAGS = ("-O1", "-std=gnu11", "-Wall", "-Wextra", "-Wno-format-truncation", "-Werror")
_STATES = (CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED, CudaState.FAILED)
_USER = """
import ctypes, sys, threading
if sys.argv[1:]:
    ctypes.CDLL(sys.argv[1])
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("up", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call into the library or of the program, by process `caller`."""

    caller: int
    action: str
    pid: int
    arguments: str


def build_library(library: Path, state: Path, *, old: bool = False) -> None:
    """Compile a libcuda; `old`: of a driver that cannot checkpoint."""
    library.parent.mkdir(parents=True, exist_ok=True)
    _compile("libcuda.c", library, state, "-shared", "-fPIC", *(["-DOLD"] if old else []))


def build_program(program: Path, state: Path, *, old: bool = False) -> None:
    """Compile a static cuda-checkpoint; `old`: it can only toggle."""
    program.parent.mkdir(parents=True, exist_ok=True)
    _compile("cuda_checkpoint.c", program, state, "-static", *(["-DOLD"] if old else []))


def build_user(program: Path) -> None:
    """Compile a program for CRIU to take; its argument is a libcuda, or a file with such a name."""
    _compile("user.c", program, program.parent, "-static", "-pthread")


class CudaSimulation:
    """A driver root with a libcuda, and processes that use it; its state is in `state`."""

    def __init__(self, folder: Path) -> None:
        self.driver_root = folder / "driver"
        self.library = self.driver_root / _LIBRARY
        self.state = folder / "state"
        self.state.mkdir()
        build_library(self.library, self.state)

    def clear(self) -> None:
        """Forget states, faults and calls."""
        for each in self.state.iterdir():
            each.unlink()

    def fault(self, action: str, words: str, *, key: str = "") -> None:
        (self.state / (f"{action}.{key}" if key else action)).write_text(words)

    def calls(self) -> tuple[Call, ...]:
        try:
            lines = (self.state / "calls").read_text().splitlines()
        except FileNotFoundError:
            return ()
        return tuple(_call(line) for line in lines)

    def state_of(self, process: ProcessRef) -> CudaState:
        (path,) = self.state.glob(f"state.*.{process.pid}.{process.started}")
        return _STATES[int(path.read_text())]

    @contextmanager
    def process(self, key: str = "", *, library: bool = True) -> Iterator[ProcessRef]:
        """A process that runs; with a `key` it uses CUDA, without `library` it never loaded it."""
        with subprocess.Popen(
            [sys.executable, "-IS", "-c", _USER, *([str(self.library)] if library else [])],
            env={"FAKE_CUDA": key} if key else {},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"up\n"
            yield _ref(running.pid)
            running.kill()


def own_process() -> ProcessRef:
    """This process, which does not use CUDA."""
    return _ref(os.getpid())


def _ref(pid: int) -> ProcessRef:
    started = start_time(Path("/proc"), pid)
    assert started is not None
    return ProcessRef(pid=pid, started=started)


def _compile(source: str, target: Path, state: Path, *flags: str) -> None:
    where = f'-DSTATE="{state}"'
    command = ["cc", *_FLAGS, where, *flags, "-o", str(target), str(_HERE / source)]
    subprocess.run(command, check=True)


def _call(line: str) -> Call:
    caller, action, pid, arguments = line.split(" ", 3)
    return Call(caller=int(caller), action=action, pid=int(pid), arguments=arguments.strip())
