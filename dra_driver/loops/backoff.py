"""Pauses between attempts, growing and never in step with other nodes."""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom

_STEPS_MAX = 32


class Backoff:
    """Doubles from `first_s` up to `cap_s`; each pause is shortened by up to a half at random.

    Args:
        first_s: the first pause.
        cap_s: the longest.
        spread: gives numbers from 0 to 1.
    """

    def __init__(
        self, *, first_s: float, cap_s: float, spread: Callable[[], float] | None = None
    ) -> None:
        self._first_s = first_s
        self._cap_s = cap_s
        self._spread = spread or SystemRandom().random
        self._steps = 0

    def next_s(self) -> float:
        """Give the next pause."""
        longest_s = min(self._cap_s, self._first_s * float(1 << self._steps))
        self._steps = min(self._steps + 1, _STEPS_MAX)
        return longest_s * (1.0 - self._spread() / 2)

    def reset(self) -> None:
        """Start again with the first pause."""
        self._steps = 0
