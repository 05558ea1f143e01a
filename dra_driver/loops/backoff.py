"""Pauses between attempts, growing and never in step with other nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import SystemRandom
from threading import Lock

from dra_driver.ports import Clock

_STEPS_MAX = 32
_FIGHT_WINDOW_S = 60.0
_FIGHTS_FREE = 3


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


class Fights:
    """How patient to be with another writer, who must not be answered blow by blow. Thread-safe.

    Args:
        clock: of the last minute, which is all that counts.
        settle_s: the pause for the first few times.
        cap_s: the longest.
    """

    def __init__(self, clock: Clock, *, settle_s: float, cap_s: float) -> None:
        self._clock = clock
        self._settle_s = settle_s
        self._cap_s = cap_s
        self._lock = Lock()
        self._at_s: deque[float] = deque(maxlen=_STEPS_MAX)

    def count(self) -> None:
        """Another's change was undone."""
        with self._lock:
            self._at_s.append(self._clock.monotonic_s())

    def settle_s(self) -> float:
        """Give the pause before another's next change is looked at."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            recent = sum(1 for at_s in self._at_s if now_s - at_s < _FIGHT_WINDOW_S)
        return min(self._cap_s, self._settle_s * float(1 << max(0, recent - _FIGHTS_FREE)))
