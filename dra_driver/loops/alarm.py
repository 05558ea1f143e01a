"""When work is due: many ask, one thread waits."""

from __future__ import annotations

from threading import Condition

from dra_driver.ports import Clock


class Alarm:
    """The earliest moment that was asked for, but none before the end of a hold. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = Condition()
        self._due_s: float | None = None
        self._held_until_s = 0.0

    def ask(self, delay_s: float) -> None:
        """Make work due in `delay_s`, unless it is due earlier already."""
        with self._changed:
            at_s = self._clock.monotonic_s() + delay_s
            if self._due_s is None or at_s < self._due_s:
                self._due_s = at_s
                self._changed.notify_all()

    def hold(self, duration_s: float) -> None:
        """Let nothing be due before `duration_s` are over, whoever asks."""
        with self._changed:
            self._held_until_s = self._clock.monotonic_s() + duration_s

    def wait(self, timeout_s: float) -> bool:
        """Wait until work is due or the time is over; due work is taken: nothing is due then."""
        end_s = self._clock.monotonic_s() + timeout_s
        with self._changed:
            while True:
                now_s = self._clock.monotonic_s()
                if self._due_s is not None and max(self._due_s, self._held_until_s) <= now_s:
                    self._due_s = None
                    return True
                if now_s >= end_s:
                    return False
                wake_s = end_s
                if self._due_s is not None:
                    wake_s = min(end_s, max(self._due_s, self._held_until_s))
                self._changed.wait(wake_s - now_s)
