"""Child processes: started with their output in a file, signalled and waited for by process id."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from dra_driver.errors import AdapterError

_OUTPUT_BYTES = 64 * 1024
_KILLED_WAIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a program of `run_program` ended.

    Attributes:
        status: exit status, negative after a signal; None: it was killed, its time was over.
        output, errors: the first 64 KiB of what it wrote to either.
    """

    status: int | None
    output: str
    errors: str


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
    arguments: Sequence[str],
    *,
    name: str,
    log: Path,
    environment: Mapping[str, str],
    session: bool = False,
) -> ChildProcess:
    """Start a child in a process group of its own: Ctrl-C of a terminal is not meant for it.

    Args:
        arguments: program and arguments; the program is looked for on PATH.
        name: for messages.
        log: both outputs are appended to it.
        environment: the whole of it.
        session: it is to outlive this process, in a session of its own.

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
                process_group=None if session else 0,
                start_new_session=session,
            )
    except OSError as error:
        raise AdapterError(f"cannot start {name} ({arguments[0]}): {error}") from error
    return ChildProcess(process, name)


def run_program(
    arguments: Sequence[str],
    *,
    name: str,
    environment: Mapping[str, str],
    timeout_s: float,
    text: str = "",
) -> Finished:
    """Run a program to its end, or kill it with all of its process group when its time is over.

    Args:
        arguments: program and arguments; the program is looked for on PATH.
        name: for messages.
        environment: the whole of it.
        timeout_s: how long it may take.
        text: its standard input; less than a pipe holds (64 KiB).

    Raises:
        AdapterError: it cannot be started.
    """
    end_s = monotonic() + timeout_s
    process = _piped(arguments, name, environment)
    try:
        output, errors = _communicate(process, text, end_s)
        status = _ended(process, end_s)
    except BaseException:
        _kill_group(process)
        raise
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
    return Finished(status=status, output=output, errors=errors)


def _piped(
    arguments: Sequence[str], name: str, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - no shell, and the caller names the program
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        raise AdapterError(f"cannot start {name} ({arguments[0]}): {error}") from error


def _communicate(process: subprocess.Popen[bytes], text: str, end_s: float) -> tuple[str, str]:
    """Give it its input and read what it writes, until it closes both or its time is over."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.write(text.encode())
            process.stdin.close()
    read = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in read:
            if stream is not None:
                selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and (left_s := end_s - monotonic()) > 0:
            for key, _ in selector.select(left_s):
                content = os.read(key.fd, _OUTPUT_BYTES)
                if not content:
                    selector.unregister(key.fileobj)
                for stream, kept in read.items():
                    if stream is key.fileobj:
                        kept.extend(content[: _OUTPUT_BYTES - len(kept)])
    output, errors = (bytes(kept).decode(errors="replace") for kept in read.values())
    return output, errors


def _ended(process: subprocess.Popen[bytes], end_s: float) -> int | None:
    try:
        return process.wait(max(0.0, end_s - monotonic()))
    except subprocess.TimeoutExpired:
        _kill_group(process)
        return None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Its group bears its id, which nobody else gets while it is not waited for.
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        # Within the kernel a call to a device may hold off even this.
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_WAIT_S)
