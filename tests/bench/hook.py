"""What the checkpoint hook costs: each of its calls, and a checkpoint with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from tests.bench.floor import write_durably
from tests.bench.hook_node import Bench, Container, bench
from tests.bench.machine import load_average, machine

CALLS = 200
PAIRS = 40
_WARM_UP = 3

FLOOR = "floor"
WRITE = "write"
"""One small file in place for good: an operation is stored in that way at each of its steps."""

BEGINS, LOCKS, ENDS, UNLOCKS = "pre-dump", "network-lock", "post-dump", "network-unlock"
OTHER = "pre-dump-other"
"""Of a container without a claim."""
START = "createRuntime"
"""At the start of a container that is not restored: what every start of a pod with a claim pays."""

WITHOUT, WITH = "without", "with"


def measure_hook(folder: Path | None) -> dict[str, Any]:
    """Measure and give the document; `folder` decides which disk is written to."""
    if os.geteuid() != 0:
        sys.exit("bench: containers and CRIU need root: start it as root")
    with TemporaryDirectory(prefix="gpuslice-bench-", dir=folder) as temporary:
        loads = [load_average()]
        with bench(Path(temporary)) as found:
            print(f"bench: load average {loads[0]}; calls", file=sys.stderr)
            calls = _Calls(found, Path(temporary))
            for _ in range(CALLS + _WARM_UP):
                calls.round()
            loads.append(load_average())
            print(f"bench: {PAIRS} pairs of checkpoints", file=sys.stderr)
            dumps = _dumps(found, operations=calls.operations)
            loads.append(load_average())
        return {
            "form": "hook",
            "machine": machine(Path(temporary)),
            "loadAverages": loads,
            "calls": {name: each[_WARM_UP:] for name, each in calls.milliseconds.items()},
            "dumps": dumps,
        }


class _Calls:
    """Calls the installed program as CRIU and runc do, one after the other."""

    def __init__(self, found: Bench, folder: Path) -> None:
        self.operations = 0
        self.milliseconds: dict[str, list[float]] = {}
        self._bench = found
        self._images = folder
        self._written = folder / "written"
        self._written.mkdir()
        self._nothing = os.open("/dev/null", os.O_RDONLY)
        self._program = str(found.program)

    def round(self) -> None:
        """One call of each kind, turn and turn about."""
        self._timed(FLOOR, ["/bin/true"], {})
        started = perf_counter()
        write_durably(self._written, "operation.json")
        self._add(WRITE, perf_counter() - started)
        self._start()
        with self._criu() as images:
            self._script(OTHER, "pre-dump", self._bench.other, images)
            for action in (BEGINS, LOCKS, ENDS, UNLOCKS):
                self._script(action, action, self._bench.claimed, images)
        self.operations += 1
        self._bench.wait_over(count=self.operations)

    @contextmanager
    def _criu(self) -> Iterator[str]:
        """A process that stands for CRIU, and has the folder of images open."""
        descriptor = os.open(self._images, os.O_RDONLY)
        process = subprocess.Popen(["sleep", "infinity"], stdin=descriptor)
        try:
            yield f"/proc/{process.pid}/fd/0"
        finally:
            process.kill()
            process.wait()
            os.close(descriptor)

    def _script(self, name: str, action: str, container: Container, images: str) -> None:
        environment = {
            "CRTOOLS_SCRIPT_ACTION": action,
            "CRTOOLS_INIT_PID": str(container.pid),
            "CRTOOLS_IMAGE_DIR": images,
        }
        self._timed(name, [self._program], environment)

    def _start(self) -> None:
        container = self._bench.claimed
        state = {"ociVersion": "1.0.2", "id": container.id, "status": "creating", "pid": 1}
        reading, writing = os.pipe()
        os.write(writing, json.dumps(state).encode())
        os.close(writing)
        command = [self._program, "oci", "createRuntime", "--claim", self._bench.claim]
        try:
            self._timed(START, command, {}, stdin=reading)
        finally:
            os.close(reading)

    def _timed(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        *,
        stdin: int | None = None,
    ) -> None:
        source = self._nothing if stdin is None else stdin
        actions = [(os.POSIX_SPAWN_DUP2, source, 0)]
        started = perf_counter()
        pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
        _, status = os.waitpid(pid, 0)
        seconds = perf_counter() - started
        if status != 0:
            raise RuntimeError(f"{name}: status {os.waitstatus_to_exitcode(status)}")
        self._add(name, seconds)

    def _add(self, name: str, seconds: float) -> None:
        self.milliseconds.setdefault(name, []).append(1e3 * seconds)


def _dumps(found: Bench, *, operations: int) -> dict[str, list[float]]:
    """Milliseconds of checkpoints of the same container, in pairs; the order in one changes."""
    milliseconds: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    for number in range(_WARM_UP + PAIRS):
        for variant in (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT):
            found.claimed.config.write_text(found.told if variant == WITH else "")
            milliseconds[variant].append(1e3 * found.runc.dump(found.claimed))
            operations += variant == WITH
            # Also proves that the hook was asked, and that without it nobody was.
            found.wait_over(count=operations)
    return {variant: each[_WARM_UP:] for variant, each in milliseconds.items()}
