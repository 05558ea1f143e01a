"""What all Locks keep, in memory and in a file alike."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.locks import FileLocks
from dra_driver.errors import NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Locks
from tests.builders import uuid
from tests.fakes.locks import FakeLocks
from tests.waiting import eventually

CLOCK = SystemClock()
A, B = uuid(0), uuid(1)


@pytest.fixture(params=["fake", "files"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Locks:
    if request.param == "fake":
        return FakeLocks(clock=CLOCK)
    return FileLocks(tmp_path, clock=CLOCK, patience_s=0.1)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def within(seconds: float) -> Deadline:
    return Deadline(CLOCK.monotonic_s() + seconds)


class Holder:
    """Holds GPUs on a thread of its own until told to let go."""

    def __init__(self, locks: Locks, pool: ThreadPoolExecutor, *gpus: str) -> None:
        self._holds, self._free = Event(), Event()
        self._locks = locks
        self._gpus = tuple(map(uuid, map(int, gpus)))
        self.done: Future[None] = pool.submit(self._run)
        assert self._holds.wait(10)

    def let_go(self) -> None:
        self._free.set()
        self.done.result(10)

    def _run(self) -> None:
        with self._locks.gpus(self._gpus, within(30)):
            self._holds.set()
            self._free.wait(30)


def test_locks_exclude_threads_when_they_name_one_claim(
    locks: Locks, pool: ThreadPoolExecutor
) -> None:
    inside, most, guard = [0], [0], Lock()

    def work() -> None:
        with locks.claim("uid-1", within(30)):
            with guard:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            with guard:
                inside[0] -= 1

    for future in [pool.submit(work) for _ in range(200)]:
        future.result(30)
    assert most == [1]


def test_locks_of_other_claims_and_gpus_are_free(locks: Locks) -> None:
    claims = locks.claim("a", within(5)), locks.claim("b", within(5))
    gpus = locks.gpus((A,), within(5)), locks.gpus((B,), within(5))
    with claims[0], claims[1], gpus[0], gpus[1]:
        pass


def test_locks_refuse_when_the_deadline_passes_first(
    locks: Locks, pool: ThreadPoolExecutor
) -> None:
    holder = Holder(locks, pool, "0")
    with pytest.raises(NotReady, match=A), locks.gpus((A,), within(0.05)):
        pass
    holder.let_go()
    with locks.gpus((A,), within(5)):
        pass


def test_locks_refuse_a_claim_when_the_deadline_passes_first(locks: Locks) -> None:
    second = locks.claim("uid-1", within(0.05))
    with locks.claim("uid-1", within(5)), pytest.raises(NotReady) as caught, second:
        pass
    assert caught.value.reason is Reason.OUT_OF_TIME
    with locks.claim("uid-1", within(5)):
        pass


def test_locks_are_free_again_when_the_work_fails(locks: Locks) -> None:
    with pytest.raises(KeyError), locks.gpus((A, B), within(5)):
        raise KeyError
    with locks.gpus((B, A), within(5)):
        pass


def test_locks_of_several_gpus_cannot_deadlock_whatever_the_order(
    locks: Locks, pool: ThreadPoolExecutor
) -> None:
    def work(number: int) -> None:
        for _ in range(50):
            with locks.gpus((A, B) if number % 2 else (B, A, B), within(30)):
                pass

    for future in [pool.submit(work, number) for number in range(4)]:
        future.result(30)


def test_locks_refuse_one_more_waiter_when_four_wait_for_a_gpu_that_hangs(
    locks: Locks, pool: ThreadPoolExecutor
) -> None:
    holder = Holder(locks, pool, "0")

    def wait() -> None:
        with locks.gpus((A,), within(30)):
            pass

    waiting = [pool.submit(wait) for _ in range(9)]
    eventually(lambda: sum(each.done() for each in waiting) >= 5, 10, "five of nine are refused")
    refused = [each.exception() for each in waiting if each.done()]
    assert {isinstance(each, NotReady) and each.reason for each in refused} == {Reason.DEVICE_BUSY}
    with locks.gpus((B,), within(5)):
        pass
    holder.let_go()
    assert [each.exception(30) is None for each in waiting].count(True) == 4
