"""A process that works on a node's folder and kills itself at a chosen moment.

usage: python -m tests.component.child FOLDER prepare|unprepare|churn CLAIM-NUMBER MOMENT

A moment is just before, or just after, something that a crash could divide: a file is made, renamed
or removed, shares are enforced. With a moment that never comes the process ends by
itself and prints how many there were.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any

from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.share import GpuShare
from tests.builders import ref
from tests.component.node_folder import FileSupervisor, NodeFolder, soon

_EVENTS = {"os.rename", "os.remove"}


class Moments:
    """Counts moments, and ends the process at one of them."""

    def __init__(self, last: int) -> None:
        self._last = last
        self.passed = 0

    def pass_one(self) -> None:
        if self.passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed += 1

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Python tells its hooks of these before they happen."""
        makes_a_file = event == "open" and isinstance(arguments[2], int)
        if event in _EVENTS or (makes_a_file and arguments[2] & os.O_CREAT):
            self.pass_one()


class DividedSupervisor(FileSupervisor):
    """A supervisor that can be cut off before and after its work."""

    def __init__(self, path: Path, moments: Moments) -> None:
        super().__init__(path)
        self._moments = moments

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        self._moments.pass_one()
        super().apply(gpu, shares, deadline)
        self._moments.pass_one()


def main(root: Path, action: str, number: int, last: int) -> None:
    moments = Moments(last)
    node = NodeFolder(root, supervisor=DividedSupervisor(root / "shares", moments))
    if action == "churn":
        print("ready", flush=True)
        for cycle in count():
            claim = ref(1 + cycle % 8)
            node.state.prepare(claim, soon())
            node.state.unprepare(claim, soon())
    sys.addaudithook(moments.audit)
    if action == "prepare":
        node.state.prepare(ref(number), soon())
    else:
        node.state.unprepare(ref(number), soon())
    print(moments.passed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
