"""Server processes and ports of a test cluster."""

import contextlib
import os
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_TICK_S = 0.05


class NotReadyError(Exception):
    """A server did not come up; the text names what was waited for and shows the end of its log."""


class Server:
    """One running server process that writes its log to a file.

    It also ends when the test process does, however that ends: the server's standard input is a
    pipe from here, and the binary stops at its end.
    """

    def __init__(self, argv: Sequence[str], *, log: Path) -> None:
        self.name = Path(argv[1]).name
        self.log = log
        environment = {**os.environ, "STOP_AT_END_OF_STDIN": "1"}
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until(
        self, problem: Callable[[], str], *, waiting_for: str, timeout_s: float = 60.0
    ) -> None:
        """Poll until ``problem`` answers with an empty text, or the process has ended.

        Raises:
            NotReadyError: the process ended, or the time was up; with the end of the log.
        """
        try:
            wait_until(
                lambda: problem() if self.running else "",
                waiting_for=waiting_for,
                timeout_s=timeout_s,
            )
        except NotReadyError as error:
            raise self._with_log(str(error)) from None
        if not self.running:
            status = self._process.returncode
            raise self._with_log(f"ended with status {status} before {waiting_for}")

    def stop(self, *, grace_s: float = 15.0) -> None:
        """Ask the process to end, and kill it after ``grace_s``."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=grace_s)
        self.kill()

    def kill(self) -> None:
        """End the process at once. Repeatable."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _with_log(self, what: str) -> NotReadyError:
        lines = self.log.read_text(errors="replace").splitlines()[-30:]
        return NotReadyError(f"{self.name}: {what}. End of {self.log}:\n" + "\n".join(lines))


def wait_until(problem: Callable[[], str], *, waiting_for: str, timeout_s: float = 30.0) -> None:
    """Poll until ``problem`` answers with an empty text.

    Raises:
        NotReadyError: the time was up; with what was waited for and the last problem.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while found := problem():
        if time.monotonic() > deadline:
            raise NotReadyError(f"waited {timeout_s:g} s for {waiting_for}; last: {found}")
        pause.wait(_TICK_S)


def free_port() -> int:
    """Find a loopback TCP port that nobody listens on.

    It lies below the range the kernel takes ports for outgoing connections from, so that it is
    still free when a server comes back to it after an outage.
    """
    for port in random.SystemRandom().sample(range(20000, 32000), k=100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise NotReadyError("none of 100 random loopback ports between 20000 and 32000 is free")
