"""Two claims on one part of a GPU: the second waits for the first to go, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dra_driver.errors import ClaimRejected, NotReady, Reason
from dra_driver.model.claim import ClaimRef
from dra_driver.model.plan import PreparePlan
from dra_driver.ports import Json
from tests import records
from tests.component.state_rig import Rig
from tests.fakes.clock import FakeClock
from tests.waiting import eventually


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_prepare_waits_until_the_holder_is_unprepared(pool: ThreadPoolExecutor) -> None:
    rig = Rig()
    old, new = rig.add(1, kind=records.WHOLE), rig.add(2, kind=records.WHOLE)
    rig.prepare(old)
    waiting = pool.submit(rig.prepare, new)
    eventually(lambda: rig.plans == 2, 10, "the second claim is planned")
    assert not waiting.done()
    rig.unprepare(old)
    assert waiting.result(10) == records.record(2, kind=records.WHOLE).devices
    assert rig.recorder.counted("overlaps_total", outcome="passed") == 1


def test_prepare_sees_a_holder_that_another_process_unprepares(pool: ThreadPoolExecutor) -> None:
    rig = Rig()
    old, new = rig.add(1, kind=records.WHOLE), rig.add(2, kind=records.WHOLE)
    rig.prepare(old)
    waiting = pool.submit(rig.prepare, new)
    eventually(lambda: rig.plans == 2, 10, "the second claim is planned")
    other_process = rig.start()
    other_process.unprepare(old, rig.within())
    assert waiting.result(10)


def test_prepare_refuses_after_five_seconds_and_names_the_holder() -> None:
    rig = Rig(FakeClock(step_s=0.25))
    old, new = rig.add(1, kind=records.WHOLE), rig.add(2, kind=records.SHARE)
    rig.prepare(old, seconds=600)
    before_s = rig.clock.monotonic_s()
    with pytest.raises(NotReady, match="team-a/claim-1") as caught:
        rig.prepare(new, seconds=600)
    assert caught.value.reason is Reason.DEVICE_IN_USE
    assert rig.clock.monotonic_s() - before_s >= 5
    assert rig.recorder.counted("overlaps_total", outcome="refused") == 1
    assert rig.state.records() == (records.record(1, kind=records.WHOLE),)
    assert not rig.has_spec(new)


def test_prepare_waits_no_longer_than_its_own_time() -> None:
    rig = Rig(FakeClock(step_s=0.05))
    old, new = rig.add(1, kind=records.WHOLE), rig.add(2, kind=records.WHOLE)
    rig.prepare(old, seconds=600)
    before_s = rig.clock.monotonic_s()
    with pytest.raises(NotReady):
        rig.prepare(new, seconds=2)
    assert rig.clock.monotonic_s() - before_s < 4


def test_prepare_refuses_at_once_when_waiting_cannot_help() -> None:
    rig = Rig(FakeClock())
    rig.prepare(rig.add(1))

    def time_sliced(body: Json, reference: ClaimRef) -> PreparePlan:
        return records.plan(body, reference, setting="TimeSlicing")

    rig.planner = time_sliced
    with pytest.raises(ClaimRejected, match="team-a/claim-1"):
        rig.prepare(rig.add(2))


def test_prepare_does_not_hold_the_gpu_while_it_waits(pool: ThreadPoolExecutor) -> None:
    rig = Rig()
    old, new = rig.add(1, kind=records.WHOLE), rig.add(2, kind=records.WHOLE)
    rig.prepare(old)
    waiting = pool.submit(rig.prepare, new)
    eventually(lambda: rig.plans == 2, 10, "the second claim is planned")
    gpus = records.record(1).gpus
    with rig.locks.gpus(gpus, rig.within(1)):
        assert not waiting.done()
    rig.unprepare(old, seconds=1)
    assert waiting.result(10)


def test_prepares_of_one_claim_at_once_are_one(pool: ThreadPoolExecutor) -> None:
    rig = Rig()
    claim = rig.add()
    answers = [pool.submit(rig.prepare, claim) for _ in range(8)]
    assert {each.result(30) for each in answers} == {records.record().devices}
    assert (rig.plans, rig.shares.calls) == (1, 1)


def test_a_slow_gpu_keeps_no_other_gpu_waiting(pool: ThreadPoolExecutor) -> None:
    rig = Rig()
    slow, fast = rig.add(1), rig.add(2, kind=records.WHOLE, on=1)
    rig.shares.gate.clear()
    waiting = pool.submit(rig.prepare, slow)
    assert rig.shares.entered.wait(10)
    assert rig.prepare(fast, seconds=5)
    rig.unprepare(fast, seconds=5)
    assert not waiting.done()
    rig.shares.gate.set()
    assert waiting.result(10)


def test_unprepare_waits_for_a_prepare_of_the_same_claim(pool: ThreadPoolExecutor) -> None:
    rig = Rig()
    claim = rig.add()
    rig.shares.gate.clear()
    preparing = pool.submit(rig.prepare, claim)
    assert rig.shares.entered.wait(10)
    unpreparing = pool.submit(rig.unprepare, claim)
    rig.shares.gate.set()
    assert preparing.result(10)
    unpreparing.result(10)
    assert rig.is_clean()
