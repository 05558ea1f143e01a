"""The watchdog over time: what it says once, again, and never; whom it ends."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest
from structlog.testing import capture_logs

from dra_driver.loops.watchdog import BYPASSED, EXCEEDED, TERMINATED
from dra_driver.model.mps import GpuSharing
from dra_driver.model.owner import PodClaims
from dra_driver.model.share import OnExceed
from tests.builders import ref, uuid
from tests.component.watchdog_bench import SERVER, Bench
from tests.unit.watching import GIB, LIMIT, OVER, owner, process, record, share_id
from tests.waiting import eventually

TERMINATE: dict[str, Any] = {"on_exceed": OnExceed.TERMINATE}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_look_measures_claims_and_forgets_those_that_are_gone(bench: Bench) -> None:
    bench.gpus.records = (record(1), record(2))
    bench.use(1, GIB)
    bench.use(2, 2 * GIB)
    bench.look()

    assert bench.gauge("share_memory_used_bytes") == 3 * GIB
    assert bench.gauge("share_memory_limit_bytes") == LIMIT
    assert bench.gauge("share_clients") == 2
    assert bench.gauge("share_clients", claim=2) == 0
    bench.gpus.records = (record(2),)
    bench.look()
    assert {
        key for key, _ in bench.recorder.gauges.items() if dict(key[1]).get("claim") == "claim-1"
    } == set()
    assert bench.gauge("share_memory_limit_bytes", claim=2) == LIMIT
    bench.gpus.records = ()
    bench.look()
    assert bench.gauge("share_memory_limit_bytes", claim=2) is None


def test_look_says_once_that_a_claim_is_above_and_reminds_every_ten_minutes(bench: Bench) -> None:
    bench.use(1, OVER)
    for _ in range(120):
        bench.look()

    assert bench.reasons() == [EXCEEDED]
    bench.look()
    assert bench.reasons() == [EXCEEDED] * 2
    assert bench.recorder.counted("share_exceeded_total", policy="Warn") == 1
    assert bench.gpus.terminated == []


def test_look_says_it_anew_when_the_claim_was_within_its_memory_between(bench: Bench) -> None:
    for memory_bytes in (OVER, LIMIT + 1, None, OVER, LIMIT, OVER):
        bench.use(1, memory_bytes)
        bench.look()

    assert bench.reasons() == [EXCEEDED] * 2
    assert bench.recorder.counted("share_exceeded_total") == 2


def test_look_says_it_anew_when_the_claim_shared_no_gpu_between(bench: Bench) -> None:
    bench.use(1, OVER)
    bench.use(2, GIB, mps=False)
    for records in ((record(1),), (), (record(1),)):
        bench.gpus.records = records
        bench.look()
        strangers = bench.recorder.gauges["strangers", (("kind", "Bypass"),)]
        assert strangers == len(records)

    assert bench.reasons() == [BYPASSED, EXCEEDED] * 2


def test_look_names_the_containers_as_the_kubelet_does(bench: Bench) -> None:
    bench.gpus.claims = (
        PodClaims(namespace="team-a", pod="train", container="main", claims=("claim-1",)),
        PodClaims(namespace="team-a", pod="other", container="main", claims=("claim-2",)),
        PodClaims(namespace="team-b", pod="alien", container="main", claims=("claim-1",)),
    )
    bench.use(1, OVER)
    bench.use(2, None)
    bench.look()

    ((claim, _, text),) = bench.events.emitted
    assert claim == ref(1)
    assert "at least 6299 MiB" in text
    assert "6144 MiB (2 processes in train/main)" in text
    assert uuid(0) in text


def test_look_names_pods_by_uid_when_the_kubelet_is_away(bench: Bench) -> None:
    bench.gpus.claims = None
    bench.use(1, OVER)
    bench.look()

    assert f"in pod {owner(1).pod_uid}" in bench.events.emitted[0][2]


def test_look_ends_the_largest_client_and_says_so_when_the_config_wants_it(bench: Bench) -> None:
    bench.gpus.records = (record(1, **TERMINATE), record(2, **TERMINATE))
    bench.use(1, 4 * GIB)
    bench.use(2, 3 * GIB)
    bench.use(3, 5 * GIB, claim=2)
    bench.look()
    bench.look()

    assert bench.gpus.terminated == [1]
    assert bench.reasons() == [EXCEEDED, TERMINATED]
    assert {claim for claim, _, _ in bench.events.emitted} == {ref(1)}
    assert bench.recorder.counted("clients_terminated_total", outcome="ok") == 1
    assert bench.recorder.counted("share_exceeded_total", policy="Terminate") == 1


def test_look_ends_nobody_else_while_the_first_is_still_listed(bench: Bench) -> None:
    bench.gpus.records = (record(1, **TERMINATE),)
    bench.use(1, 4 * GIB)
    bench.use(2, 3 * GIB)
    bench.gpus.lingering = {1}
    for _ in range(6):
        bench.look()
    assert bench.gpus.terminated == [1]

    bench.look(after_s=30)

    assert bench.gpus.terminated == [1, 1]


def test_look_ends_nobody_when_the_pid_became_another_processs(bench: Bench) -> None:
    bench.gpus.records = (record(1, **TERMINATE),)
    bench.use(1, OVER)
    bench.gpus.replaced = {1}
    bench.look()

    assert bench.reasons() == [EXCEEDED]
    assert bench.gpus.terminated == []


def test_look_counts_and_tries_again_when_a_client_does_not_end(bench: Bench) -> None:
    bench.gpus.records = (record(1, **TERMINATE),)
    bench.use(1, OVER)
    bench.gpus.stubborn = {1}
    bench.look()
    bench.look()
    assert bench.recorder.counted("clients_terminated_total", outcome="failed") == 2

    bench.gpus.stubborn = set()
    bench.look()

    assert bench.gpus.terminated == [1]
    assert bench.reasons() == [EXCEEDED, TERMINATED]


@pytest.mark.parametrize("problem", ["records", "blind", "unreadable"])
def test_look_changes_nothing_while_it_cannot_see(bench: Bench, problem: str) -> None:
    bench.gpus.records = (record(1, **TERMINATE), record(2, on=(1,)))
    bench.use(1, GIB)
    bench.look()
    before = dict(bench.recorder.gauges)
    kept = bench.gpus.records
    bench.use(2, OVER)
    match problem:
        case "records":
            bench.gpus.records = None
        case "blind":
            bench.gpus.blind = {uuid(0)}
        case _:
            bench.gpus.unreadable = {1}
    bench.look()
    assert (bench.recorder.gauges, bench.reasons(), bench.gpus.terminated) == (before, [], [])

    bench.gpus.records, bench.gpus.blind, bench.gpus.unreadable = kept, set(), set()
    bench.look()

    assert bench.gpus.terminated == [2]


def test_look_watches_other_gpus_when_one_is_lost(bench: Bench) -> None:
    bench.gpus.records = (record(1), record(2, on=(1,)))
    bench.gpus.blind = {uuid(0)}
    bench.gpus.run(process(1, OVER), owner(1, share_id(2)), on=1)
    bench.look()

    assert [claim for claim, _, _ in bench.events.emitted] == [ref(2)]


def test_look_logs_a_problem_once_for_each_change(bench: Bench) -> None:
    with capture_logs() as logged:
        for blind in ({uuid(0)}, {uuid(0)}, set(), set(), {uuid(0)}):
            bench.gpus.blind = blind
            bench.look()

    cannot, can = "The watchdog cannot do its work", "The watchdog can do its work again"
    assert [each["event"] for each in logged] == [cannot, can, cannot]
    assert "is lost" in logged[0]["error"]


def test_look_tells_of_a_stranger_once_and_counts_those_that_are_there(bench: Bench) -> None:
    bench.use(1, GIB, mps=False)
    bench.gpus.run(process(2), owner(2))
    bench.gpus.run(process(3), owner(3, pod=None))
    bench.gpus.run(process(SERVER), owner(SERVER, pod=4))
    bench.look()
    bench.look()

    def strangers() -> dict[str, float]:
        return {
            dict(key)["kind"]: value
            for (name, key), value in bench.recorder.gauges.items()
            if name == "strangers"
        }

    assert strangers() == {"Bypass": 1, "Intruder": 1, "Host": 1}
    ((claim, reason, text),) = bench.events.emitted
    assert (claim, reason) == (ref(1), BYPASSED)
    assert "CUDA_MPS_PIPE_DIRECTORY" in text
    for pid in (1, 2, 3):
        bench.gpus.end(pid)
    bench.look()
    assert strangers() == {"Bypass": 0, "Intruder": 0, "Host": 0}


@pytest.mark.parametrize(
    ("states", "number"),
    [
        ((), 0),
        ((GpuSharing(gpu=uuid(0)),), 0),
        ((GpuSharing(gpu=uuid(1), server_pid=7),), 0),
        ((GpuSharing(gpu=uuid(0), simulated=True),), 1),
        ((GpuSharing(gpu=uuid(0), server_pid=7),), 1),
    ],
)
def test_look_takes_nobody_for_an_intruder_before_it_knows_the_server(
    bench: Bench, states: tuple[GpuSharing, ...], number: int
) -> None:
    bench.gpus.states = states
    bench.gpus.run(process(2), owner(2))
    bench.look()

    assert bench.recorder.gauges["strangers", (("kind", "Intruder"),)] == number


def test_run_looks_until_it_is_stopped(bench: Bench) -> None:
    bench.use(1, OVER)
    stop = Event()
    thread = Thread(target=bench.watchdog.run, args=(stop,), name="watchdog")
    thread.start()
    eventually(bench.reasons, 60, "an Event")
    stop.set()
    thread.join(60)

    assert not thread.is_alive()
