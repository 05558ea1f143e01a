"""gpuslice-hook as tests run it: compiled with sanitizers, against a driver and a /proc of theirs."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from dra_driver.checkpoint.raw_line import RawRequest, decode
from tests.arch.sources import ROOT

SOURCE = ROOT / "dra_driver" / "native" / "hook.c"
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
MARKER = "/run/gpuslice/claim"
_WARNINGS = ("-std=c17", "-Wall", "-Wextra", "-Werror")
_PATIENCE_S = 60
_SANITIZER_STATUS = 99

Answer = bytes | Callable[[socket.socket], None]


def build(target: Path, *flags: str) -> Path:
    """Compile the program."""
    subprocess.run(["cc", *_WARNINGS, *flags, str(SOURCE), "-o", str(target)], check=True)
    return target


def hang(connection: socket.socket) -> None:
    """Say nothing until the program is gone."""
    connection.settimeout(_PATIENCE_S)
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass


class FakeDriver:
    """Listens on a socket and gives one answer to each call; a context manager.

    Args:
        path: of the socket.
        answer: what is sent once a request is whole, before hanging up, or what is done instead.
    """

    def __init__(self, path: Path, answer: Answer = b"OK\n") -> None:
        self.path = path
        self.requests: list[bytes] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = Thread(target=self._serve, name="fake-driver")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def decoded(self) -> RawRequest:
        """The only request that came."""
        (request,) = self.requests
        return decode(request)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        if not isinstance(self._answer, bytes):
            self._answer(connection)
            return
        request = b""
        while not _is_whole(request):
            block = connection.recv(65536)
            if not block:
                break
            request += block
        self.requests.append(request)
        connection.sendall(self._answer)


def _is_whole(request: bytes) -> bool:
    line, newline, body = request.partition(b"\n")
    return bool(newline) and len(body) >= int(line.rpartition(b" len=")[2])


class FakeProc:
    """The /proc that a program was compiled for."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def clear(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()

    def process(self, pid: int, *mounts: str, started: int = 4711, name: str = "server") -> None:
        """Add a process with mounts at these places beside those that every container has."""
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        fields = " ".join(str(number) for number in range(4, 22))
        (folder / "stat").write_text(f"{pid} ({name}) S {fields} {started} 23 24\n")
        places = ("/", "/proc", "/dev", *mounts)
        lines = [
            f"{number} 1 0:{number} /some/folder {place} ro,nosuid shared:{number} - tmpfs {MARKER} rw"
            for number, place in enumerate(places, 100)
        ]
        (folder / "mountinfo").write_text("\n".join(lines) + "\n")

    def images(self, criu: int, folder: str) -> str:
        """Let CRIU's process hold the folder of images open; gives CRTOOLS_IMAGE_DIR."""
        (self.root / str(criu) / "fd" / "9").symlink_to(folder)
        return f"/proc/{criu}/fd/9"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class HookProgram:
    """One build; `proc` is where it reads processes."""

    path: Path
    proc: FakeProc

    def run(
        self,
        *arguments: str | Path,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        return self.run_command((self.path, *arguments), stdin=stdin, environment=environment)

    def run_command(
        self,
        command: tuple[str | Path, ...],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
    ) -> Ended:
        ended = subprocess.run(
            [str(part) for part in command],
            input=stdin,
            capture_output=True,
            env={**_sanitizer_options(), **(environment or {})},
            timeout=_PATIENCE_S,
            check=False,
        )
        text = ended.stderr.decode(errors="replace")
        assert ended.returncode != _SANITIZER_STATUS, text
        assert "runtime error" not in text
        return Ended(ended.returncode, ended.stdout.decode() + text)

    def script(self, action: str, *arguments: str | Path, **environment: str) -> Ended:
        """Run it as CRIU does, but for the arguments that tests alone need."""
        return self.run(*arguments, environment={"CRTOOLS_SCRIPT_ACTION": action, **environment})


def _sanitizer_options() -> dict[str, str]:
    options = f"exitcode={_SANITIZER_STATUS}:abort_on_error=0"
    return {"ASAN_OPTIONS": f"{options}:detect_leaks=0", "UBSAN_OPTIONS": options}
