"""Signals of a long-running process."""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Callable
from threading import Event, Thread
from types import FrameType

from dra_driver.errors import FatalError, GpusliceError

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
_MANY = 64
_POLL_S = 0.1


class StopSignals:
    """The first stopping signal asks, the second hurries, a third one ends the process at once.

    They are heard on a thread of its own: a handler would run inside whatever the main thread is
    doing, and there it could wait for a lock that this very thread holds. SIGUSR2 prints the stacks
    of all threads to standard error.

    Attributes:
        stop: set by the first signal, or by whoever ends the process for another reason.
        hurry: set by the second one.
    """

    def __init__(self) -> None:
        self.stop = Event()
        self.hurry = Event()

    def install(self) -> None:
        """Take over the process's signals; only the main thread can."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        for number in STOPPING:
            signal.signal(number, _noted)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        faulthandler.register(signal.SIGUSR2, all_threads=True)
        Thread(target=self._hear, args=(reader,), name="signals", daemon=True).start()

    def completes(self, work: Callable[[], None], *, name: str) -> bool:
        """Do work that may take long or hang for ever; False where a stop came first.

        The thread that it is done on is left behind then, and whoever ends the process must not
        wait for anything that the work holds.

        Raises:
            FatalError: the work failed with an error that is a bug.
            GpusliceError: whatever the work raised.
        """
        attempt = _Attempt(work, name=name)
        attempt.start()
        while attempt.is_alive() and not self.stop.is_set():
            attempt.join(_POLL_S)
        return attempt.succeeded()

    def _hear(self, reader: int) -> None:
        while numbers := os.read(reader, _MANY):
            for number in numbers:
                if number in STOPPING:
                    self._asked(number)

    def _asked(self, number: int) -> None:
        if self.hurry.is_set():
            os._exit(128 + number)
        if self.stop.is_set():
            self.hurry.set()
        self.stop.set()


class _Attempt(Thread):
    def __init__(self, work: Callable[[], None], *, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._error: GpusliceError = FatalError(f"{name} failed: see the log, and report this")
        self._done = False

    def run(self) -> None:
        try:
            self._work()
        except GpusliceError as error:
            self._error = error
        else:
            self._done = True

    def succeeded(self) -> bool:
        """False while it runs; raises what it raised."""
        if self.is_alive():
            return False
        if not self._done:
            raise self._error
        return True


def _noted(number: int, frame: FrameType | None) -> None:
    """Nothing: the interpreter writes the number to the pipe before it calls this."""
    del number, frame
