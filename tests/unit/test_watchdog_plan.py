"""Whose memory is summed, who is above it, who is to go, and who should not be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.owner import ProcessOwner
from dra_driver.model.record import Record
from dra_driver.model.share import OnExceed, Sharing
from dra_driver.plan.watchdog import evaluate, watched
from dra_driver.plan.watchdog_values import Findings, Seen, StrangerKind, Usage
from tests.builders import BOOT, ref, uuid
from tests.unit.watching import (
    GIB,
    LIMIT,
    MIB,
    OVER,
    monitor,
    owner,
    process,
    record,
    seen,
    share_id,
)

TERMINATE: dict[str, Any] = {"on_exceed": OnExceed.TERMINATE}
SERVER = 5000


def judge(
    *processes: Seen,
    records: tuple[Record, ...] = (record(1),),
    servers: frozenset[int] | None = frozenset({SERVER}),
    ending: frozenset[tuple[int, int]] = frozenset(),
) -> Findings:
    on = watched(records, BOOT)
    return evaluate(uuid(0), processes, on=on, servers=servers, ending=ending)


def usage(*processes: Seen, records: tuple[Record, ...] = (record(1),)) -> Usage:
    (only,) = judge(*processes, records=records).usages
    return only


def kinds(findings: Findings) -> list[tuple[int, StrangerKind]]:
    return [(each.pid, each.kind) for each in findings.strangers]


def test_watched_has_shares_of_this_boot_by_gpu() -> None:
    on = watched((record(2, on=(1, 0)), record(1), monitor(3), record(4, boot_id="other")), BOOT)

    ids = {gpu: [each.share.id for each in shares] for gpu, shares in on.shares.items()}
    assert ids == {uuid(0): [share_id(1), share_id(2, 1)], uuid(1): [share_id(2)]}
    assert on.claims[uuid(0)] == {ref(1).uid, ref(2).uid, ref(3).uid}
    assert ref(4).uid not in on.known


def test_evaluate_sums_processes_of_all_containers_and_pods() -> None:
    found = usage(seen(1, 2 * GIB), seen(2, GIB), seen(3, GIB, pod=2), seen(4, GIB, claim=9))

    assert (found.claim, found.gpu) == (ref(1), uuid(0))
    assert (found.used_bytes, found.limit_bytes, found.clients) == (4 * GIB, LIMIT, 3)
    assert (found.complete, found.over, found.under, found.enforced) == (True, False, True, True)
    assert found.pods == (owner(1, pod=1).pod_uid, owner(1, pod=2).pod_uid)


def test_evaluate_tells_claims_apart() -> None:
    found = judge(seen(1, GIB), seen(2, OVER, claim=2), records=(record(1), record(2)))

    assert [(each.claim, each.used_bytes, each.over) for each in found.usages] == [
        (ref(1), GIB, False),
        (ref(2), OVER, True),
    ]


@pytest.mark.parametrize(
    ("used", "over", "under"),
    [
        (LIMIT, False, True),
        (LIMIT + 1, False, False),
        (OVER - 1, False, False),
        (OVER, True, False),
    ],
)
def test_evaluate_leaves_room_between_under_and_over(used: int, over: bool, under: bool) -> None:  # noqa: FBT001
    found = usage(seen(1, used - MIB), seen(2, MIB))

    assert (found.over, found.under) == (over, under)


def test_evaluate_gives_at_least_when_the_driver_does_not_say() -> None:
    found = usage(seen(1, None), seen(2, GIB))
    above = usage(seen(1, None), seen(2, OVER))

    assert (found.used_bytes, found.complete, found.over, found.under) == (GIB, False, False, False)
    assert (above.complete, above.over) == (False, True)


def test_evaluate_takes_a_claim_for_its_shares_of_this_gpu_alone() -> None:
    both = record(1, on=(0, 1, 0))

    found = usage(Seen(process=process(1), owner=owner(1, share_id(1))), records=(both,))

    assert found.limit_bytes == 2 * LIMIT
    assert found.used_bytes == GIB


@pytest.mark.parametrize(
    ("known", "used"),
    [
        (owner(1, claims=(1,)), GIB),
        (owner(1, share_id(1), claims=(1, 2)), GIB),
        (owner(1, claims=(9,)), 0),
        (owner(1, share_id(9)), 0),
        (owner(1), 0),
        (None, 0),
    ],
)
def test_evaluate_counts_what_can_be_attributed(known: ProcessOwner | None, used: int) -> None:
    entry = replace(seen(1), owner=known)

    found = judge(entry, records=(record(1), record(2)))

    assert [each.used_bytes for each in found.usages] == [used, 0]
    assert all(each.complete for each in found.usages)


def test_evaluate_counts_for_nobody_what_may_be_of_two_claims() -> None:
    entry = Seen(process=process(1, OVER), owner=owner(1, claims=(1, 2)))

    found = judge(entry, records=(record(1, **TERMINATE), record(2, **TERMINATE)))

    assert [(each.used_bytes, each.complete, each.under) for each in found.usages] == [
        (0, False, False)
    ] * 2


def test_evaluate_counts_who_hides_its_mounts_for_the_claim_of_its_pod() -> None:
    hidden = Seen(process=process(2, OVER), owner=owner(2, pod=7))
    records = (
        record(1, pods=(7,), **TERMINATE),
        record(2, pods=(8,)),
        record(3, on=(1,), pods=(7,)),
    )

    found = judge(seen(1, pod=7), hidden, records=records)

    assert [each.used_bytes for each in found.usages] == [GIB + OVER, 0]
    assert [each.pid for each in found.usages[0].victims] == [2]
    assert found.strangers == ()


def test_evaluate_ends_nobody_who_hides_its_mounts_where_turns_are_taken() -> None:
    hidden = Seen(process=process(2, OVER), owner=owner(2, pod=7))
    turns = record(1, pods=(7,), **(TERMINATE | {"sharing": Sharing.TIME_SLICING}))

    found = judge(hidden, records=(turns,))

    assert [(each.used_bytes, each.victims) for each in found.usages] == [(OVER, ())]
    assert found.strangers == ()


def test_evaluate_counts_for_nobody_who_hides_its_mounts_in_a_pod_of_two_claims() -> None:
    hidden = Seen(process=process(2, OVER), owner=owner(2, pod=7))
    elsewhere = Seen(process=process(3, OVER), owner=owner(3, share_id(9), pod=7))

    found = judge(hidden, elsewhere, records=(record(1, pods=(7,)), record(2, pods=(7, 8))))

    assert [each.used_bytes for each in found.usages] == [0, 0]
    assert kinds(found) == [(2, StrangerKind.INTRUDER)]


def test_evaluate_names_the_largest_clients_until_the_rest_fits() -> None:
    processes = (seen(1, GIB), seen(2, 4 * GIB), seen(3, 2 * GIB), seen(4, 3 * GIB))

    found = usage(*processes, records=(record(1, memory_mib=4096, **TERMINATE),))

    assert [(each.pid, each.started) for each in found.victims] == [(2, 500), (4, 500)]


def test_evaluate_names_nobody_when_the_policy_is_to_warn() -> None:
    assert usage(seen(1, OVER)).victims == ()
    assert usage(seen(1, OVER)).over


@pytest.mark.parametrize(
    "entry",
    [
        seen(1, OVER, mps=False),
        seen(1, None),
        Seen(process=process(1, OVER), owner=owner(1, share_id(1), share_id(1, 1))),
        Seen(process=process(1, OVER), owner=owner(1, claims=(1,))),
    ],
)
def test_evaluate_names_nobody_whose_share_is_not_clear(entry: Seen) -> None:
    two = record(1, on=(0, 0), memory_mib=2048, **TERMINATE)

    found = usage(entry, seen(2, OVER, mps=False), records=(two,))

    assert found.over
    assert found.victims == ()


def test_evaluate_names_a_client_by_its_claims_only_share() -> None:
    entry = Seen(process=process(1, OVER), owner=owner(1, claims=(1,)))

    found = usage(entry, records=(record(1, **TERMINATE),))

    assert [each.pid for each in found.victims] == [1]


def test_evaluate_reports_alone_where_gpus_are_time_sliced() -> None:
    sliced = record(1, sharing=Sharing.TIME_SLICING, **TERMINATE)

    found = judge(seen(1, OVER, mps=False), seen(2, OVER), records=(sliced,))

    assert found.usages[0].over
    assert not found.usages[0].enforced
    assert found.usages[0].victims == ()
    assert found.strangers == ()


def test_evaluate_does_not_count_clients_that_are_ending() -> None:
    old, new = seen(1, OVER), replace(seen(1, OVER), owner=owner(1, share_id(1), started=501))
    records = (record(1, **TERMINATE),)

    ended = judge(old, seen(2, GIB), records=records, ending=frozenset({(1, 500)}))
    reused = judge(new, records=records, ending=frozenset({(1, 500)}))

    assert (ended.usages[0].used_bytes, ended.usages[0].over) == (GIB, False)
    assert [each.started for each in reused.usages[0].victims] == [501]


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (Seen(process=process(1), owner=owner(1)), StrangerKind.INTRUDER),
        (Seen(process=process(1, mps=False), owner=owner(1)), StrangerKind.INTRUDER),
        (Seen(process=process(1), owner=owner(1, share_id(2))), StrangerKind.INTRUDER),
        (Seen(process=process(1), owner=owner(1, pod=None)), StrangerKind.HOST),
        (Seen(process=process(1), owner=owner(1, pod=None, container="c")), StrangerKind.INTRUDER),
        (seen(1, mps=False), StrangerKind.BYPASS),
        (seen(1), None),
        (Seen(process=process(1), owner=None), None),
        # of a claim without a record: it is being let go
        (Seen(process=process(1), owner=owner(1, share_id(9))), None),
        # a monitor of this GPU
        (Seen(process=process(1, mps=False), owner=owner(1, claims=(3,))), None),
        # the server, in whatever container it runs
        (Seen(process=process(SERVER), owner=owner(SERVER)), None),
        (Seen(process=process(SERVER), owner=owner(SERVER, pod=None)), None),
    ],
)
def test_evaluate_tells_strangers(entry: Seen, kind: StrangerKind | None) -> None:
    found = judge(entry, records=(record(1), record(2, on=(1,)), monitor(3)))

    assert kinds(found) == ([] if kind is None else [(1, kind)])
    if kind is not None:
        assert found.strangers[0].claim == (ref(1) if kind is StrangerKind.BYPASS else None)


def test_evaluate_calls_no_mps_process_a_stranger_when_the_server_is_not_known() -> None:
    found = judge(
        Seen(process=process(1), owner=owner(1)),
        Seen(process=process(2, mps=False), owner=owner(2)),
        servers=None,
    )

    assert kinds(found) == [(2, StrangerKind.INTRUDER)]


@given(
    st.lists(st.tuples(st.integers(0, 8 * GIB), st.booleans()), max_size=6),
    st.integers(1, 16384),
)
def test_evaluate_ends_no_more_than_it_has_to(
    sizes: list[tuple[int, bool]], limit_mib: int
) -> None:
    processes = [seen(1 + pid, size, mps=mps) for pid, (size, mps) in enumerate(sizes)]

    found = usage(*processes, records=(record(1, memory_mib=limit_mib, **TERMINATE),))

    left = found.used_bytes - sum(each.memory_bytes for each in found.victims)
    clients = sum(1 for size, mps in sizes if mps and size)
    assert found.over or not found.victims
    if found.over:
        assert left <= found.limit_bytes or len(found.victims) == clients
    if found.victims:
        assert left + found.victims[-1].memory_bytes > found.limit_bytes
