"""A clock that a test turns by hand."""

from __future__ import annotations

from threading import Lock


class FakeClock:
    """Stands still, or goes on by `step_s` whenever somebody looks at it."""

    def __init__(self, *, now_s: float = 1000.0, step_s: float = 0.0) -> None:
        self._lock = Lock()
        self._now_s = now_s
        self._step_s = step_s

    def monotonic_s(self) -> float:
        with self._lock:
            self._now_s += self._step_s
            return self._now_s

    def wall_s(self) -> float:
        return 1_700_000_000.0 + self.monotonic_s()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now_s += seconds
