"""A watchdog, what it looks at and what it leaves."""

from __future__ import annotations

from threading import Event

from dra_driver.loops.watchdog import Eyes, Watchdog
from dra_driver.model.mps import GpuSharing
from tests.builders import BOOT, ref, uuid
from tests.fakes.claims import FakeEvents
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import FakeRecorder
from tests.fakes.watched_gpus import WatchedGpus
from tests.unit.watching import owner, process, record, share_id

SERVER = 5000


class Bench:
    """GPU 0 with a share of claim 1; its MPS server is SERVER."""

    def __init__(self) -> None:
        self.gpus = WatchedGpus()
        self.gpus.records = (record(1),)
        self.gpus.states = (GpuSharing(gpu=uuid(0), server_pid=SERVER),)
        self.events = FakeEvents()
        self.clock = FakeClock()
        self.recorder = FakeRecorder()
        self.watchdog = Watchdog(
            Eyes(
                control=self.gpus,
                owners=self.gpus,
                pods=self.gpus,
                records=self.gpus.all_records,
                sharing=lambda: self.gpus.states,
            ),
            terminator=self.gpus,
            events=self.events,
            clock=self.clock,
            recorder=self.recorder,
            boot_id=BOOT,
            interval_s=0.01,
        )

    def use(self, pid: int, memory_bytes: int | None, *, claim: int = 1, mps: bool = True) -> None:
        self.gpus.run(process(pid, memory_bytes, mps=mps), owner(pid, share_id(claim)))

    def look(self, *, after_s: float = 5.0) -> None:
        self.clock.advance(after_s)
        self.watchdog.look(Event())

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events.emitted]

    def gauge(self, name: str, *, claim: int = 1, on: int = 0) -> float | None:
        name_of = ref(claim)
        labels = {"namespace": name_of.namespace, "claim": name_of.name, "gpu": str(uuid(on))}
        return self.recorder.gauges.get((name, tuple(sorted(labels.items()))))
