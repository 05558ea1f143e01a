"""Where a step runs, and the client processes that it starts."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Self

UNPRIVILEGED = 1000
_ANSWER_S = 12.0
_HUNG_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What a step needs to know.

    Attributes:
        work: folder of this run, readable by all; its name is in the environment of every process.
        control: nvidia-cuda-mps-control; empty where there is none.
        gpu: UUID.
        driver: version, such as "570.133.20".
        libcuda: empty: libcuda.so.1 of the system.
        pace: factor for all waits; below 1 with fakes.
        exclusive: the compute mode may be changed for the time of the run.
        nvml: pynvml can be used.
    """

    work: str
    control: str = ""
    gpu: str = ""
    driver: str = ""
    libcuda: str = ""
    pace: float = 1.0
    exclusive: bool = False
    nvml: bool = True

    @property
    def branch(self) -> int:
        return int(self.driver.split(".")[0] or 0) if self.driver else 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Site:
        return Site(**json.loads(text))

    def folder(self, name: str) -> Path:
        """A new folder that every user can enter."""
        path = Path(self.work) / f"{name}-{time.monotonic_ns()}"
        path.mkdir(mode=0o755)
        return path

    def pause(self, seconds: float) -> None:
        Event().wait(seconds * self.pace)


class Client:
    """A running `tests.gpu.client`; leaving the block kills it.

    Args:
        site: where.
        pipe: its CUDA_MPS_PIPE_DIRECTORY; None: a folder without a daemon.
        env: further variables.
        uid: runs as this user and group.
        prefix: a command that runs the client, such as unshare.
    """

    def __init__(
        self,
        site: Site,
        *,
        pipe: Path | None = None,
        env: Mapping[str, str] | None = None,
        uid: int | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        script = Path(site.work) / "client.py"
        if not script.exists():
            shutil.copy(Path(__file__).with_name("client.py"), script)
            script.chmod(0o644)
        given = {"GPU_TEST_WORK": site.work, "CUDA_MPS_PIPE_DIRECTORY": str(pipe or site.work)}
        if site.libcuda:
            given["GPU_TEST_LIBCUDA"] = site.libcuda
        kept = {
            name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ
        }
        self._process = subprocess.Popen(
            [*prefix, python_for(uid), "-I", "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, **given, **(env or {})},
            cwd=site.work,
            **as_user(uid),
        )
        # Of Popen's streams only the descriptors are used: select has to know what is unread.
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        self._rest = b""
        self._number = 0
        self._hung = False

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, *, within_s: float = _ANSWER_S, **arguments: Any) -> dict[str, Any]:
        """The answer; {"hung": True} or {"ended": status} where none comes.

        One that hung once is not waited for as long again; its late answers are dropped.
        """
        self._number += 1
        request = json.dumps({"do": do, "number": self._number, **arguments})
        with suppress(BrokenPipeError):
            os.write(self._stdin, request.encode() + b"\n")
        end_s = time.monotonic() + (min(within_s, _HUNG_S) if self._hung else within_s)
        while (answer := self._answer(end_s)).pop("number", self._number) != self._number:
            continue
        self._hung = "hung" in answer
        return answer

    def _answer(self, end_s: float) -> dict[str, Any]:
        while b"\n" not in self._rest:
            left_s = max(0.0, end_s - time.monotonic())
            if not select.select([self._stdout], [], [], left_s)[0]:
                return {"hung": True}
            piece = os.read(self._stdout, 65536)
            if not piece:
                return {"ended": self._process.wait()}
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return dict(json.loads(line))

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        # One that is stuck in the kernel is left to the runner.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


def as_user(uid: int | None) -> dict[str, Any]:
    """Arguments of Popen; without root, and so with fakes only, everybody is who starts this."""
    return {} if uid is None or os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}


def python_for(uid: int | None) -> str:
    """An interpreter that this user may run: one in a home of root's is not."""
    system = "/usr/bin/python3"
    return system if uid is not None and Path(system).exists() else sys.executable


def try_client(site: Site, **client: Any) -> dict[str, Any]:
    """Start, open a context, allocate a little, run a kernel, leave."""
    with Client(site, **client) as one:
        started = one.ask("init")
        if started.get("code") != 0:
            return {"init": started}
        return {
            "init": started,
            "alloc_64_mib": one.ask("alloc", mib=64),
            "spin": one.ask("spin", seconds=0.01),
        }
