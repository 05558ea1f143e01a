"""Ctrl-C and its like, heard where the demo is ready for them."""

from __future__ import annotations

import signal
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Whether somebody wants the demo to end.

    An exception out of a signal handler may come inside a lock, a callback or a finaliser, where
    it is lost or leaves the lock held. So a signal is only noted, and raised at `check`.
    """

    def __init__(self) -> None:
        self._asked = False

    def listen(self) -> None:
        """Note signals from now on; a shell starts background jobs deaf to Ctrl-C."""
        for number in _SIGNALS:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Between two steps.

        Raises:
            KeyboardInterrupt: somebody wants the demo to end.
        """
        if self._asked:
            raise KeyboardInterrupt

    def take(self) -> bool:
        """Give whether somebody asked, and forget it."""
        asked, self._asked = self._asked, False
        return asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._asked = True
