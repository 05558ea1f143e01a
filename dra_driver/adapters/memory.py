"""How the C library hands out memory."""

from __future__ import annotations

import ctypes

_ARENAS = 2
_M_ARENA_MAX = -8
"""Of mallopt (glibc, malloc.h)."""


def share_arenas() -> None:
    """Let threads that come share a few arenas of memory; without glibc nothing happens.

    glibc gives each an arena of its own otherwise, up to eight for each core; none ever shrinks.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
