"""Threads that must not end: named, stopped together, and fatal when one ends by itself."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from dra_driver import log
from dra_driver.errors import FatalError

Loop = Callable[[Event], None]


class LoopGuard:
    """Runs loops, each on a thread of its own, until they are told to stop.

    Args:
        on_fatal: called once with a sentence when a loop ends without having been asked to; the
            process must end then, because a node whose monitor is dead looks healthy for ever.
    """

    def __init__(self, on_fatal: Callable[[str], None]) -> None:
        self._on_fatal = on_fatal
        self._stop = Event()
        self._threads: list[Thread] = []
        self._log = log.get(__name__)

    def start(self, name: str, loop: Loop) -> None:
        thread = Thread(target=self._run, args=(name, loop), name=name)
        self._threads.append(thread)
        thread.start()

    def stop(self, timeout_s: float) -> tuple[str, ...]:
        """Ask all loops to stop and wait for them; names of those still running, in start order.

        Args:
            timeout_s: for all of them together.
        """
        self._stop.set()
        end_s = monotonic() + timeout_s
        for thread in reversed(self._threads):
            thread.join(max(0.0, end_s - monotonic()))
        return tuple(thread.name for thread in self._threads if thread.is_alive())

    def ended(self) -> tuple[str, ...]:
        """Names of the loops that were started and do not run, in start order."""
        return tuple(thread.name for thread in self._threads if not thread.is_alive())

    def _run(self, name: str, loop: Loop) -> None:
        try:
            loop(self._stop)
        except FatalError as error:
            self._on_fatal(f"loop {name} failed: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it was, the process must not live on
            self._log.exception("A loop failed", loop=name)
            self._on_fatal(f"loop {name} failed: {error!r}")
        else:
            if not self._stop.is_set():
                self._on_fatal(f"loop {name} ended although nobody asked it to")
