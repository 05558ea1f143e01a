"""The monitor against a scripted library, on a clock that only the script moves."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from dra_driver.errors import AdapterError, DriverNotLoaded
from dra_driver.loops.health_monitor import HealthMonitor
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.health import GpuEvent, HealthStatus
from dra_driver.plan.health import XidPolicy
from dra_driver.state.current import Current
from tests.builders import BOOT, gpu, inventory, uuid
from tests.fakes.recorder import FakeRecorder

TWO = inventory(gpu(0), gpu(1))
ONE = inventory(gpu(0))
XID = (GpuEvent(uuid=uuid(1), xid=79),)

Wait = tuple[float, tuple[GpuEvent, ...] | AdapterError]


class Bench:
    """A monitor whose library answers by script; the run ends with the script of waits.

    Args:
        reads: what each read of the inventory gives; the last one repeats.
        waits: how long each wait for events takes and what it gives.
    """

    def __init__(
        self,
        reads: list[Inventory | AdapterError],
        waits: list[Wait],
        held: Callable[[], frozenset[GpuUuid]] | None = None,
    ) -> None:
        self.reads = reads
        self.waits = waits
        self.now_s = 0.0
        self.read_at_s: list[float] = []
        self.problems: list[str] = []
        self.asked_s: list[float] = []
        self.seen: list[Inventory | None] = []
        self.target = Current[Inventory | None](None)
        self.problem = Current("")
        self.recorder = FakeRecorder()
        self.stop = Stop(self)
        self.monitor = HealthMonitor(
            self,
            self.target,
            problem=self.problem,
            clock=self,
            recorder=self.recorder,
            policy=XidPolicy(),
            held=held,
            interval_s=30,
            wait_s=1,
        )

    def run(self) -> Inventory:
        self.monitor.run(self.stop)
        result = self.target.get()
        assert result is not None
        return result

    def inventory(self) -> Inventory:
        self.read_at_s.append(self.now_s)
        self.problems.append(self.problem.get())
        result = self.reads.pop(0) if len(self.reads) > 1 else self.reads[0]
        if isinstance(result, AdapterError):
            raise result
        return result

    def wait_events(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        self.asked_s.append(timeout_s)
        self.seen.append(self.target.get())
        if not self.waits:
            self.stop.set()
            return ()
        takes_s, result = self.waits.pop(0)
        self.now_s += min(takes_s, timeout_s)
        if isinstance(result, AdapterError):
            raise result
        return result

    def boot_id(self) -> str:
        return BOOT

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_s(self) -> float:
        return self.now_s


class Stop(Event):
    """A stop event whose waits move the bench's clock."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.waited_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited_s.append(timeout or 0)
        self._bench.now_s += timeout or 0
        if len(self.waited_s) > 50:
            self.set()
        return self.is_set()


def status(of: Inventory, number: int) -> HealthStatus:
    (found,) = (each.status for each in of.health if each.uuid == uuid(number))
    return found


def cause(of: Inventory, number: int) -> str:
    (found,) = (each.cause for each in of.health if each.uuid == uuid(number))
    return found


def timeouts(number: int) -> list[Wait]:
    return [(1, ())] * number


def test_monitor_sets_the_inventory_at_start() -> None:
    bench = Bench([TWO], [])

    assert bench.run() == TWO
    assert bench.problem.get() == ""


def test_monitor_reads_again_when_the_interval_is_over_and_not_before() -> None:
    bench = Bench([TWO], timeouts(65))

    bench.run()

    assert bench.read_at_s == [0, 30, 60]
    assert max(bench.asked_s) <= 1


def test_monitor_reads_again_when_the_library_returns_early() -> None:
    bench = Bench([ONE, TWO], [(1, ()), (0.2, ()), (1, ())])

    assert bench.run() == TWO
    assert len(bench.read_at_s) == 2


def test_monitor_marks_a_gpu_and_reads_again_when_an_xid_comes() -> None:
    bench = Bench([TWO], [(0.1, XID)])

    result = bench.run()

    assert cause(result, 1) == "xid-79"
    assert status(result, 0) is HealthStatus.HEALTHY
    assert len(bench.read_at_s) == 2
    assert bench.recorder.counted("gpu_xid_total", xid="79") == 1
    assert bench.recorder.gauges["gpus", (("health", "Unhealthy"),)] == 1


def test_monitor_goes_on_waiting_when_an_xid_changes_nothing() -> None:
    ignored = (GpuEvent(uuid=uuid(0), xid=13), GpuEvent(uuid="", xid=79))
    bench = Bench([TWO], [(0, ignored)] * 100)

    assert bench.run() == TWO
    assert len(bench.read_at_s) == 1


def test_monitor_keeps_a_lost_gpu_and_restores_it() -> None:
    bench = Bench([TWO, ONE, TWO], timeouts(61))

    assert bench.run() == TWO

    lost = bench.seen[45]
    assert lost is not None
    assert cause(lost, 1) == "lost"


def test_monitor_drops_a_vanished_gpu_when_nothing_holds_it() -> None:
    bench = Bench([TWO, ONE], timeouts(31), held=frozenset)

    assert bench.run() == ONE


def test_monitor_tries_again_with_growing_pauses_until_the_driver_is_there() -> None:
    away = DriverNotLoaded("load the driver")
    bench = Bench([*[away] * 8, TWO], [(1, AdapterError("no driver"))] * 8)

    assert bench.run() == TWO

    gaps_s = [
        after - before for before, after in zip(bench.read_at_s, bench.read_at_s[1:], strict=False)
    ]
    assert gaps_s[:3] == sorted(gaps_s[:3])
    assert all(0.5 <= gap_s <= 11 for gap_s in gaps_s)
    assert bench.problems == ["", *["load the driver"] * 8]
    assert bench.problem.get() == ""


def test_monitor_leaves_the_target_alone_until_the_first_read() -> None:
    bench = Bench([DriverNotLoaded("load the driver")], timeouts(3))

    bench.monitor.run(bench.stop)

    assert bench.target.get() is None
    assert bench.problem.get() == "load the driver"
    assert bench.recorder.counted("gpu_read_failures_total") >= 1


def test_monitor_delivers_events_that_came_before_the_first_inventory() -> None:
    bench = Bench([DriverNotLoaded("not yet"), TWO], [(0.5, XID), (1, ())])

    assert cause(bench.run(), 1) == "xid-79"


def test_monitor_marks_all_gpus_when_the_driver_goes_away() -> None:
    bench = Bench([TWO, DriverNotLoaded("gone"), TWO], timeouts(40))

    assert bench.run() == TWO

    away = bench.seen[30]
    assert away is not None
    assert away.gpus == TWO.gpus
    assert {each.cause for each in away.health} == {"driver-not-loaded"}


def test_monitor_keeps_the_last_inventory_when_a_read_fails() -> None:
    bench = Bench([TWO, AdapterError("malformed")], timeouts(40))

    assert bench.run() == TWO
    assert bench.problem.get() == "malformed"


def test_monitor_backs_off_when_events_cannot_be_had_and_marks_nothing() -> None:
    bench = Bench([TWO], [(0, AdapterError("GPU is lost"))] * 40)

    assert bench.run() == TWO

    assert bench.recorder.counted("gpu_event_failures_total") > 5
    assert sum(bench.stop.waited_s[:10]) > 30
    assert max(bench.stop.waited_s) <= 10


def test_monitor_does_not_spin_when_the_library_returns_at_once() -> None:
    bench = Bench([TWO], [(0, ())] * 40)

    bench.run()

    assert bench.now_s >= 40 * 0.1
