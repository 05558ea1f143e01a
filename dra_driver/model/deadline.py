"""A deadline is a value that travels with a call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock by which an answer is due."""

    at_s: float

    def remaining_s(self, now_s: float) -> float:
        """Seconds left at `now_s`, never negative."""
        return max(0.0, self.at_s - now_s)
