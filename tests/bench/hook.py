"""What the checkpoint hook costs: each of its calls, and a checkpoint with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from tests.bench import hook_node
from tests.bench.floor import write_durably
from tests.bench.hook_node import Bench, bench
from tests.bench.machine import load_average, machine
from tests.bench.runc import LARGE_MIB, Container

SMALL, LARGE = "small", "large"
"""Containers that are checkpointed: of next to no memory, and of `LARGE_MIB`."""

CALLS = 200
FIRST_EVERY = 4
"""Rounds in which a container is called for the first time, of which there are not so many."""
PAIRS = {SMALL: 100, LARGE: 40}
_WARM_UP = 3

FLOOR = "floor"
WRITE = "write"
"""One small file in place for good: an operation is stored in that way at each of its steps."""

BEGINS, LOCKS, ENDS, UNLOCKS = "pre-dump", "network-lock", "post-dump", "network-unlock"
FIRST = "pre-dump-first"
"""The first one of a container, of which the kubelet has told before."""
FRESH = "pre-dump-fresh"
"""The first one of a container that has just been started: the kubelet is asked."""
OTHER = "pre-dump-other"
"""Of a container without a claim."""
START = "createRuntime"
"""At the start of a container that is not restored: what every start of a pod with a claim pays."""

WITHOUT, WITH = "without", "with"
"""Checkpoints by whether CRIU is told of the hook."""


def measure_hook(folder: Path | None) -> dict[str, Any]:
    """Measure and give the document; `folder` decides which disk is written to."""
    if os.geteuid() != 0:
        sys.exit("bench: containers and CRIU need root: start it as root")
    with (
        TemporaryDirectory(prefix="gpuslice-bench-", dir=folder) as temporary,
        _first_in_line(),
    ):
        loads = [load_average()]
        with bench(Path(temporary)) as found:
            print(f"bench: load average {loads[0]}; calls", file=sys.stderr)
            calls = _Calls(found, Path(temporary))
            for _ in range(CALLS + _WARM_UP):
                calls.round()
            loads.append(load_average())
            print(f"bench: {sum(PAIRS.values())} pairs of checkpoints", file=sys.stderr)
            dumps = _Dumps(found, operations=calls.operations).measured()
            loads.append(load_average())
        return {
            "form": "hook",
            "machine": machine(Path(temporary)),
            "loadAverages": loads,
            "largeMib": LARGE_MIB,
            "calls": {name: each[_WARM_UP:] for name, each in calls.milliseconds.items()},
            "dumps": dumps,
        }


@contextmanager
def _first_in_line() -> Iterator[None]:
    """Let this process and all that it starts go before the machine's other work, where it may.

    Linux weighs sessions against each other first, and processes within them then.
    """
    session, before = Path("/proc/self/autogroup"), os.getpriority(os.PRIO_PROCESS, 0)
    known = session.read_text().rpartition(" ")[2] if session.exists() else None
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        if known is not None:
            session.write_text("-20")
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)
            if known is not None:
                session.write_text(known)


class _Calls:
    """Calls the installed program as CRIU and runc do, one after the other."""

    def __init__(self, found: Bench, folder: Path) -> None:
        self.operations = 0
        self._rounds = 0
        self._firsts = iter(found.firsts)
        self._fresh = count(hook_node.FRESH)
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
            other = self._bench.others[self._rounds % len(self._bench.others)]
            self._script(OTHER, "pre-dump", other, images)
            for action in (BEGINS, LOCKS, ENDS, UNLOCKS):
                self._script(action, action, self._bench.claimed, images)
        self.operations += 1
        self._rounds += 1
        if self._rounds % FIRST_EVERY == 0:
            self._first(FIRST, next(self._firsts))
            self._just_started()
        self._bench.wait_over(count=self.operations)

    def _just_started(self) -> None:
        container = self._bench.runc.start(next(self._fresh), mark=self._bench.mark)
        try:
            self._first(FRESH, container)
        finally:
            self._bench.runc.delete(container)

    def _first(self, name: str, container: Container) -> None:
        self._bench.wait_over(count=self.operations)
        with self._criu() as images:
            self._script(name, "pre-dump", container, images)
            self._script(None, "post-dump", container, images)
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

    def _script(self, name: str | None, action: str, container: Container, images: str) -> None:
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
        name: str | None,
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
            raise RuntimeError(f"{command}: status {os.waitstatus_to_exitcode(status)}")
        if name is not None:
            self._add(name, seconds)

    def _add(self, name: str, seconds: float) -> None:
        self.milliseconds.setdefault(name, []).append(1e3 * seconds)


class _Dumps:
    """Checkpoints of the same container in pairs, with the hook and without, as containerd asks."""

    def __init__(self, found: Bench, *, operations: int) -> None:
        self._bench = found
        self._operations = operations

    def measured(self) -> dict[str, dict[str, list[dict[str, float]]]]:
        """By container, then with and without; those of one place are a pair."""
        kinds = ((SMALL, self._bench.claimed), (LARGE, self._bench.large))
        return {kind: self._pairs(kind, container) for kind, container in kinds}

    def _pairs(self, kind: str, container: Container) -> dict[str, list[dict[str, float]]]:
        dumps: dict[str, list[dict[str, float]]] = {WITHOUT: [], WITH: []}
        for number in range(_WARM_UP + PAIRS[kind]):
            # What the one leaves to be done, the other pays for: each comes first in turn.
            for variant in (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT):
                told = self._bench.told if variant == WITH else ""
                dumps[variant].append(asdict(self._bench.runc.dump(container, told)))
                self._operations += variant == WITH
                # Also proves that the hook was asked, and that without it nobody was.
                self._bench.wait_over(count=self._operations)
        return {variant: each[_WARM_UP:] for variant, each in dumps.items()}
