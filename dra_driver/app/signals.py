"""Signals of a long-running process."""

from __future__ import annotations

import faulthandler
import os
import signal
from threading import Event
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


class StopSignals:
    """The first stopping signal asks, the second hurries, a third one ends the process at once.

    SIGUSR2 prints the stacks of all threads to standard error.

    Attributes:
        stop: set by the first signal, or by whoever ends the process for another reason.
        hurry: set by the second one.
    """

    def __init__(self) -> None:
        self.stop = Event()
        self.hurry = Event()

    def install(self) -> None:
        """Take over the process's signals; only the main thread can."""
        for number in STOPPING:
            signal.signal(number, self._asked)
        faulthandler.register(signal.SIGUSR2, all_threads=True)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.hurry.is_set():
            os._exit(128 + number)
        if self.stop.is_set():
            self.hurry.set()
        self.stop.set()
