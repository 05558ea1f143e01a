"""Locks in a file: other processes, order of arrival, nothing left behind."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.locks import FileLocks
from dra_driver.errors import AdapterError, NotReady
from dra_driver.model.deadline import Deadline
from tests.builders import claim_uid, uuid
from tests.waiting import descriptors, eventually

CLOCK = SystemClock()
HOLDER = """
import sys
from pathlib import Path
from tests.component.test_file_locks import FileLocks, CLOCK, within, uuid
locks = FileLocks(Path(sys.argv[1]), clock=CLOCK)
with locks.claim("uid-1", within(60)), locks.gpus((uuid(0),), within(60)):
    print("held", flush=True)
    sys.stdin.read()
"""


def within(seconds: float) -> Deadline:
    return Deadline(CLOCK.monotonic_s() + seconds)


def test_locks_exclude_another_process_until_it_dies(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, clock=CLOCK)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(NotReady), locks.claim("uid-1", within(0.1)):
            pass
        with pytest.raises(NotReady), locks.gpus((uuid(1), uuid(0)), within(0.1)):
            pass
        with locks.claim("uid-2", within(5)), locks.gpus((uuid(1),), within(5)):
            child.kill()
    with locks.claim("uid-1", within(5)), locks.gpus((uuid(0),), within(5)):
        pass


def test_locks_are_given_in_order_of_arrival(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path, clock=CLOCK)
    order: list[int] = []

    def work(number: int) -> None:
        with locks.claim("uid-1", within(30)):
            order.append(number)

    with ThreadPoolExecutor(8) as pool, locks.claim("uid-1", within(30)):
        for number in range(8):
            pool.submit(work, number)
            wanted = number + 1
            eventually(partial(_queue_is, locks, wanted), 10, f"{wanted} calls stand in the queue")
    assert order == list(range(8))


def _queue_is(locks: FileLocks, length: int) -> bool:
    return len(locks._queues._waiting["claim uid-1"]) == length


def test_locks_leave_one_file_and_no_descriptor_however_many_claims(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path / "locks", clock=CLOCK)
    with locks.claim(claim_uid(0), within(5)):
        before = descriptors()
    for number in range(300):
        with locks.claim(claim_uid(number), within(5)), locks.gpus((uuid(0),), within(5)):
            pass
    assert len(list((tmp_path / "locks").iterdir())) == 1
    assert descriptors() == before
    assert locks._queues._waiting == {}


def test_locks_say_what_to_do_when_their_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    locks = FileLocks(tmp_path / "file/locks", clock=CLOCK)
    with pytest.raises(AdapterError, match=r"--state-dir"), locks.claim("uid-1", within(5)):
        pass
    assert locks._queues._waiting == {}
