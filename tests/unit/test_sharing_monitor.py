"""The monitor of sharing beside a supervisor that a test commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event, Thread
from typing import Self

import pytest

from dra_driver.errors import AdapterError
from dra_driver.loops.sharing_monitor import SharingMonitor, SharingTiming
from dra_driver.model.deadline import Deadline
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.record import Record
from dra_driver.state.current import Current
from tests import records
from tests.builders import uuid
from tests.fakes.claims import FakeEvents
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import FakeRecorder
from tests.fakes.sharing_states import FakeSharingStates
from tests.waiting import eventually

ACTIVE = GpuSharing(gpu=uuid(0), phase=MpsPhase.ACTIVE, shares=("a", "b"), daemon_pid=7, clients=2)
FAULT = replace(ACTIVE, phase=MpsPhase.FAULT, message="the daemon ends at once", clients=None)
HELD = (records.record(1), records.record(2), records.record(3, on=1))


class Bench:
    """`told` counts calls of on_abilities; `asserted` calls of assert_shares."""

    def __init__(self, source: FakeSharingStates) -> None:
        self.source = source
        self.states = Current[tuple[GpuSharing, ...]](())
        self.events = FakeEvents()
        self.clock = FakeClock()
        self.recorder = FakeRecorder()
        self.stop = Event()
        self.told = 0
        self.asserted = 0
        self.problems: list[tuple[str, ...]] = []
        self.monitor = SharingMonitor(
            source,
            self.states,
            held=self._held,
            assert_shares=self._assert,
            on_abilities=self._tell,
            events=self.events,
            clock=self.clock,
            recorder=self.recorder,
            timing=SharingTiming(retry_first_s=1.0, retry_cap_s=1.0),
        )
        self.journal_broken = False
        self._thread = Thread(target=self.monitor.run, args=(self.stop,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def reasons(self) -> list[tuple[str, str]]:
        return sorted((claim.name, reason) for claim, reason, _ in list(self.events.emitted))

    def wait(self, condition: Callable[[], object], what: str) -> None:
        eventually(condition, 30, what)

    def wait_phase(self, phase: MpsPhase, count: int = 1) -> None:
        """Until the monitor has taken in, and told of, `count` GPUs in a phase."""
        key = ("mps_gpus", (("phase", phase.value),))
        self.wait(lambda: self.recorder.gauges.get(key) == count, f"{count} GPUs are {phase}")

    def _held(self) -> tuple[Record, ...]:
        if self.journal_broken:
            raise AdapterError("the journal cannot be read")
        return HELD

    def _assert(self, deadline: Deadline) -> tuple[str, ...]:
        assert deadline.remaining_s(self.clock.monotonic_s()) > 0
        self.asserted += 1
        return self.problems.pop(0) if self.problems else ()

    def _tell(self) -> None:
        self.told += 1


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench(FakeSharingStates(ACTIVE)) as bench:
        bench.wait_phase(MpsPhase.ACTIVE)
        bench.wait(lambda: bench.asserted, "shares are asserted")
        yield bench


def test_monitor_tells_each_claim_on_a_gpu_when_its_daemon_was_lost(bench: Bench) -> None:
    bench.source.tell(replace(ACTIVE, restarts=1, daemon_pid=8, clients=0))
    bench.wait(lambda: len(bench.events.emitted) == 2, "Events are written")
    assert bench.reasons() == [("claim-1", "MpsServerLost"), ("claim-2", "MpsServerLost")]
    assert bench.events.emitted[0][2] == (
        f"the MPS server of GPU {uuid(0)} ended and is started again: processes that used it are "
        "lost and get CUDA errors; restart the pod"
    )
    assert bench.recorder.counted("mps_server_restarts_total") == 1


def test_monitor_tells_a_lasting_fault_once_and_again_when_it_comes_back(bench: Bench) -> None:
    bench.source.tell(FAULT)
    bench.wait_phase(MpsPhase.FAULT)
    assert bench.reasons() == []
    bench.clock.advance(6)
    bench.wait(lambda: len(bench.events.emitted) == 2, "Events are written")
    assert bench.reasons() == [("claim-1", "MpsFault"), ("claim-2", "MpsFault")]
    assert "the daemon ends at once" in bench.events.emitted[0][2]
    bench.source.tell(replace(FAULT, message="it still ends at once"))
    bench.wait(
        lambda: bench.states.get()[0].message.startswith("it still"), "the next state is seen"
    )
    bench.clock.advance(60)
    bench.source.tell(ACTIVE)
    bench.wait_phase(MpsPhase.ACTIVE)
    assert len(bench.events.emitted) == 2
    bench.source.tell(FAULT)
    bench.wait_phase(MpsPhase.FAULT)
    bench.clock.advance(6)
    bench.wait(lambda: len(bench.events.emitted) == 4, "Events are written again")


def test_monitor_goes_on_when_it_cannot_tell_whose_shares_were_hit(bench: Bench) -> None:
    bench.journal_broken = True
    bench.source.tell(replace(ACTIVE, restarts=1))
    bench.wait(lambda: bench.recorder.counted("mps_server_restarts_total"), "it is counted")
    bench.source.tell(FAULT)
    bench.wait_phase(MpsPhase.FAULT)
    assert bench.events.emitted == []


def test_monitor_keeps_the_states_and_asserts_shares_anew_when_mpsd_comes_back(
    bench: Bench,
) -> None:
    connected = ("mpsd_connected", ())
    bench.source.leave()
    bench.wait(lambda: bench.recorder.gauges[connected] == 0, "the loss is seen")
    assert bench.states.get() == (ACTIVE,)
    assert bench.monitor.problem() == ""
    bench.clock.advance(31)
    assert "away for 31 s" in bench.monitor.problem()
    assert "the socket is closed" in bench.monitor.problem()
    bench.source.come(GpuSharing(gpu=uuid(0)))
    bench.wait(lambda: bench.asserted == 2, "shares are asserted again")
    assert bench.recorder.gauges[connected] == 1
    assert bench.states.get() == (GpuSharing(gpu=uuid(0)),)
    assert bench.monitor.problem() == ""


def test_monitor_asserts_again_after_a_pause_when_not_all_could_be_done(bench: Bench) -> None:
    bench.problems = [("shares of GPU x: no",)]
    bench.source.leave()
    bench.source.come(ACTIVE)
    bench.wait(lambda: bench.asserted == 2, "shares are asserted again")
    bench.clock.advance(2)
    bench.wait(lambda: bench.asserted == 3, "they are asserted once more")
    bench.clock.advance(60)
    bench.source.tell(FAULT)
    bench.wait_phase(MpsPhase.FAULT)
    assert bench.asserted == 3


def test_monitor_asks_for_publishing_when_a_promise_changes_only(bench: Bench) -> None:
    before = bench.told
    bench.source.tell(replace(ACTIVE, clients=40))
    key = ("mps_clients", (("gpu", uuid(0)),))
    bench.wait(lambda: bench.recorder.gauges[key] == 40, "clients are counted")
    assert bench.told == before
    bench.source.tell(replace(ACTIVE, refusal="a foreign daemon runs"))
    bench.wait(lambda: bench.told == before + 1, "publishing is asked for")


def test_wait_known_returns_when_mpsd_tells_first_or_the_time_is_over() -> None:
    with Bench(FakeSharingStates(away="no such socket")) as bench:
        bench.monitor.wait_known(bench.stop, 0.0)
        assert bench.asserted == 0
        bench.source.come(ACTIVE)
        bench.monitor.wait_known(bench.stop, 30.0)
        assert bench.states.get() == (ACTIVE,)


def test_run_stops_at_once_while_mpsd_is_away() -> None:
    with Bench(FakeSharingStates(away="no such socket")) as bench:
        bench.wait(lambda: ("mpsd_connected", ()) in bench.recorder.gauges, "it runs")
    assert bench.states.get() == ()
