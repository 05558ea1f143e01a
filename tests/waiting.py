"""Waiting for something to come true, with a deadline and a name for what did not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.01


def eventually(predicate: Callable[[], T], timeout_s: float, what: str) -> T:
    """Poll until `predicate` is truthy and return its value.

    Raises:
        AssertionError: it was not within `timeout_s`; `what` says what was waited for.
    """
    never = Event()
    end_s = monotonic() + timeout_s
    while True:
        if value := predicate():
            return value
        if monotonic() >= end_s:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        never.wait(_POLL_S)


def descriptors() -> int:
    """How many files this process has open, apart from what waits for the garbage collector."""
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
