"""Child processes: started with their output in a file, signalled and waited for by process id."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from dra_driver.errors import AdapterError


class ChildProcess:
    """One running or ended child of this process; see `start_process`."""

    def __init__(self, process: subprocess.Popen[bytes], name: str) -> None:
        self._process = process
        self._name = name

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """Exit status, negative after a signal; None while it runs."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a child that has ended gets none."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Wait for the end, and give the exit status.

        Raises:
            AdapterError: it still runs after `timeout_s`.
        """
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise AdapterError(
                f"{self._name} (process {self.pid}) still runs after {timeout_s:g} s"
            ) from error

    def kill(self) -> None:
        """End it at once and for certain; repeatable."""
        self._process.kill()
        self._process.wait()


def start_process(
    arguments: Sequence[str], *, name: str, log: Path, environment: Mapping[str, str]
) -> ChildProcess:
    """Start a child in a process group of its own: Ctrl-C of a terminal is not meant for it.

    Args:
        arguments: program and arguments; the program is looked for on PATH.
        name: for messages.
        log: both outputs are appended to it.
        environment: the whole of it.

    Raises:
        AdapterError: it cannot be started.
    """
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - no shell, and the caller names the program
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                process_group=0,
            )
    except OSError as error:
        raise AdapterError(f"cannot start {name} ({arguments[0]}): {error}") from error
    return ChildProcess(process, name)
