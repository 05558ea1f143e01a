"""The machine's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """The port `Clock` over the module `time`."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wall_s(self) -> float:
        return time.time()
