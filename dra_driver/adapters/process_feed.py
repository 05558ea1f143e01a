"""Programs that are fed more than a pipe holds."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Timer
from typing import IO

from dra_driver.adapters.process import Finished
from dra_driver.errors import AdapterError

_KEPT_BYTES = 64 * 1024


def feed_program(
    arguments: Sequence[str],
    feed: Callable[[IO[bytes]], None],
    *,
    name: str,
    environment: Mapping[str, str],
    timeout_s: float,
) -> Finished:
    """Run a program on what `feed` writes, to its end, or kill it when its time is over.

    A program that ends before it has read all is no error here: its status tells.

    Raises:
        AdapterError: it cannot be started; or what `feed` raises, and then the program is killed.
    """
    with _memory(name) as output, _memory(name) as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell, and the caller names the program
                list(arguments),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env=dict(environment),
                start_new_session=True,
            )
        except OSError as error:
            raise AdapterError(f"cannot start {name} ({arguments[0]}): {error}") from error
        status = _fed(process, feed, name=name, timeout_s=timeout_s)
        return Finished(status=status, output=_start(output), errors=_start(errors))


def _fed(
    process: subprocess.Popen[bytes],
    feed: Callable[[IO[bytes]], None],
    *,
    name: str,
    timeout_s: float,
) -> int | None:
    late = Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = Timer(timeout_s, end)
    timer.name = f"timeout-{name}"
    timer.start()
    try:
        _feed(process, feed)
        status = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        timer.cancel()
        timer.join()
    return None if late.is_set() else status


def _feed(process: subprocess.Popen[bytes], feed: Callable[[IO[bytes]], None]) -> None:
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    try:
        feed(process.stdin)
    except BrokenPipeError:
        pass
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()


def _memory(name: str) -> IO[bytes]:
    # In the plugin's container there is no folder for temporary files.
    return os.fdopen(os.memfd_create(name), "w+b")


def _start(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_KEPT_BYTES).decode(errors="replace")
