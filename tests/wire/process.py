"""A small driver process: ROOT GRACE_S HOLD; HOLD keeps prepares until ROOT/open appears."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event

from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.record import PreparedDevice
from tests.fakes.operations import FakeOperations
from tests.waiting import eventually
from tests.wire.plugin import Plugin


class HoldingOperations(FakeOperations):
    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def prepare(self, ref: ClaimRef, deadline: Deadline) -> tuple[PreparedDevice, ...]:
        (self._root / "entered").touch()
        eventually((self._root / "open").exists, 120.0, "permission to go on")
        return super().prepare(ref, deadline)


def main(root: Path, *, grace_s: float, hold: bool) -> int:
    plugin = Plugin(root, ready=False)
    plugin.late.set(HoldingOperations(root) if hold else plugin.operations)
    stop, hurry = Event(), Event()

    def on_signal(_number: int, _frame: object) -> None:
        (hurry if stop.is_set() else stop).set()

    signal.signal(signal.SIGTERM, on_signal)
    plugin.start()
    stop.wait()
    if not plugin.stop(grace_s=grace_s, now=hurry):
        os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), grace_s=float(sys.argv[2]), hold=sys.argv[3] == "1"))
