"""A control daemon of a step's own, in a private folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.gpu.site import Site, as_user

_START_S = 10.0
_CALL_S = 5.0
_COMMON = ("NEW UI", "UI closed", "Accepting connection", "Cmd:get_")


class Daemon:
    """Runs while its block is entered.

    Args:
        site: where.
        flags: of nvidia-cuda-mps-control, beside -f.
        env: further variables.
    """

    def __init__(
        self, site: Site, *, flags: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self._site = site
        self._flags = tuple(flags)
        self.pipe = site.folder("pipe")
        self.log = site.folder("log")
        self._env = daemon_environment(site, self.pipe, self.log) | dict(env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def call(self, *commands: str, uid: int | None = None, pipe: Path | None = None) -> str:
        """Run commands through the control program; both outputs, or what went wrong."""
        return call(self._site, pipe or self.pipe, *commands, uid=uid)

    def timed(self, *commands: str) -> dict[str, Any]:
        begun_s = time.monotonic()
        reply = self.call(*commands)
        return {"reply": reply, "seconds": round(time.monotonic() - begun_s, 3)}

    def servers(self) -> list[int]:
        return [int(each) for each in self.call("get_server_list").split() if each.isdigit()]

    def clients(self) -> list[int]:
        return [
            int(each)
            for server in self.servers()
            for each in self.call(f"get_client_list {server}").split()
            if each.isdigit()
        ]

    def control_only(self, name: str = "share") -> Path:
        """A folder with a hard link to the socket `control` alone."""
        folder = self._site.folder(name)
        os.link(self.pipe / "control", folder / "control")
        return folder

    def log_end(self, characters: int = 1500) -> dict[str, str]:
        """The ends of its logs, without what every command adds."""
        return {
            path.name: "\n".join(
                line
                for line in path.read_text(errors="replace").splitlines()
                if not any(word in line for word in _COMMON)
            )[-characters:]
            for path in sorted(self.log.iterdir())
            if path.is_file()
        }

    def kill(self) -> None:
        """End the daemon alone, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(5)

    def start(self) -> str:
        """Start it until it answers; gives its output where it does not."""
        output = (self.log / "output").open("ab")
        with output:
            self._process = subprocess.Popen(
                [self._site.control, "-f", *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._site.work,
            )
        end_s = time.monotonic() + _START_S
        while time.monotonic() < end_s and self._process.poll() is None:
            if (
                "Cannot find" not in self.call("get_server_list")
                and (self.pipe / "control").exists()
            ):
                return ""
            self._site.pause(0.05)
        return (self.log / "output").read_text(errors="replace") or "it does not answer"

    def __enter__(self) -> Self:
        refusal = self.start()
        if refusal:
            self.kill()
            raise RuntimeError(f"the control daemon with {self._flags} does not start: {refusal}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            self.call("quit -t 2")
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            self.kill()


def daemon_environment(site: Site, pipe: Path, log: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    folders = f"{Path(site.control).parent}:{kept.get('PATH', '')}"
    return {
        **kept,
        "PATH": folders,
        "LANG": "C",
        "GPU_TEST_WORK": site.work,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(log),
        "CUDA_VISIBLE_DEVICES": site.gpu,
    }


def call(site: Site, pipe: Path, *commands: str, uid: int | None = None) -> str:
    """Run commands through the control program; both outputs, or what went wrong."""
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [site.control if uid is None else _for_everybody(site)],
            input="\n".join(commands) + "\n",
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            env=daemon_environment(site, pipe, pipe),
            cwd=site.work,
            **as_user(uid),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"(no answer within {_CALL_S:g} s)"
    except OSError as error:
        return f"(cannot run: {error})"
    return (done.stdout + done.stderr).strip()


def _for_everybody(site: Site) -> str:
    """A copy of the program, which may lie where only root can enter."""
    copy = Path(site.work) / "control-of-everybody"
    if not copy.exists():
        shutil.copy(site.control, copy)
        copy.chmod(0o755)
    return str(copy)
