from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.record import GpuUse, Record, RecordState, Use
from dra_driver.plan.overlap import conflict
from tests.builders import BOOT, claim_uid, ref, uuid
from tests.unit.planning import device, slot

USABLE = {uuid(0): 10_000, uuid(1): 10_000}


def held(kind: Use = Use.SHARED, **changes: Any) -> GpuUse:
    share = kind is Use.SHARED
    fields: dict[str, Any] = {
        "gpu": uuid(0),
        "use": kind,
        "device": slot(25) if kind is Use.SLOT else device(),
        "share_id": None,
        "compute_percent": 25 if share or kind is Use.SLOT else 100,
        "memory_mib": 2_500 if share or kind is Use.SLOT else 10_000,
        "setting": "MPS" if share or kind is Use.SLOT else "",
    }
    if kind is Use.MONITOR:
        fields |= {"compute_percent": 0, "memory_mib": 0, "device": f"{device()}-monitor"}
    return GpuUse(**(fields | changes))


def record(number: int, *uses: GpuUse, boot: str = BOOT) -> Record:
    return Record(
        claim=ref(number),
        state=RecordState.PREPARED,
        boot_id=boot,
        uses=uses,
        steps=(),
        devices=(),
    )


def by_uid(*records: Record) -> dict[str, Record]:
    return {each.claim.uid: each for each in records}


EXCLUSIVE, SHARED, SLOT, MONITOR = Use.EXCLUSIVE, Use.SHARED, Use.SLOT, Use.MONITOR


@pytest.mark.parametrize(
    ("wanted", "other", "may_pass", "text"),
    [
        (held(EXCLUSIVE), held(EXCLUSIVE), True, "holds all: one of them needs the GPU for itself"),
        (
            held(EXCLUSIVE),
            held(),
            True,
            (
                f"claim team-a/claim-1 cannot have all of GPU {uuid(0)} while claim team-a/claim-2 "
                "holds 25 % and 2500 MiB under MPS: one of them needs the GPU for itself; it is free "
                "once claim team-a/claim-2 is unprepared"
            ),
        ),
        (held(), held(EXCLUSIVE, setting="TimeSlice=Long"), True, "holds all under TimeSlice=Long"),
        (held(SLOT), held(EXCLUSIVE), True, "for itself"),
        (held(share_id="s"), held(share_id="s"), True, "they are the same share s"),
        (held(SLOT), held(SLOT), True, "they are the same slot"),
        (
            held(setting="TimeSlicing"),
            held(),
            False,
            (
                "claim-2 holds 25 % and 2500 MiB under MPS: all claims on one GPU must agree, and these"
                " are TimeSlicing and MPS; ask for the same `sharing`, or for another GPU"
            ),
        ),
        (held(SLOT), held(setting="TimeSlicing"), False, "these are MPS and TimeSlicing"),
        (
            held(),
            held(setting="TimeSlicing=Long"),
            False,
            (
                "claim-2 holds 25 % and 2500 MiB under TimeSlicing=Long: all claims on one GPU must "
                "agree, and these are MPS and TimeSlicing=Long; ask for the same `sharing`, or"
            ),
        ),
        (
            held(setting="TimeSlicing=Short"),
            held(setting="TimeSlicing=Long"),
            False,
            (
                "under TimeSlicing=Long: all claims on one GPU must agree, and these are "
                "TimeSlicing=Short and TimeSlicing=Long; ask for the same `timeSlice`, or for another"
            ),
        ),
        (
            held(compute_percent=76),
            held(),
            True,
            (
                f"claim team-a/claim-1 does not fit on GPU {uuid(0)} beside claims team-a/claim-2: "
                "together they hold 101 % of 100 % compute and 5000 MiB of 10000 MiB; delete the pod "
                "and its claim if this lasts"
            ),
        ),
        (held(memory_mib=7501), held(), True, "10001 MiB of 10000 MiB"),
        (held(compute_percent=76), held(SLOT), True, "101 %"),
    ],
)
def test_conflict_names_the_holder_when_two_uses_exclude_each_other(
    *, wanted: GpuUse, other: GpuUse, may_pass: bool, text: str
) -> None:
    found = conflict(record(1, wanted), by_uid(record(2, other)), BOOT, usable_mib=USABLE)
    assert found is not None
    assert found.holder == ref(2)
    assert found.may_pass is may_pass
    assert text in found.text


@pytest.mark.parametrize(
    ("wanted", "other"),
    [
        (held(EXCLUSIVE), held(MONITOR)),
        (held(MONITOR), held(EXCLUSIVE)),
        (held(MONITOR), held(MONITOR)),
        (held(MONITOR), held()),
        (held(share_id="a"), held(share_id="b")),
        (held(), held()),
        (held(SLOT), held(SLOT, device=slot(25, 1))),
        (held(SLOT), held(compute_percent=75, memory_mib=7500)),
        (held(compute_percent=75, memory_mib=7500), held()),
        (held(EXCLUSIVE), held(EXCLUSIVE, gpu=uuid(1))),
        (held(setting="TimeSlicing"), held(gpu=uuid(1))),
        (held(setting=""), held()),
        (held(setting="TimeSlicing=Long"), held(setting="TimeSlicing")),
        (held(setting="TimeSlicing"), held(setting="TimeSlicing=Long")),
        (held(setting="TimeSlicing=Long"), held(setting="TimeSlicing=Long")),
        (held(compute_percent=90), held(gpu=uuid(1))),
    ],
)
def test_conflict_is_none_when_both_can_stand_beside_each_other(
    wanted: GpuUse, other: GpuUse
) -> None:
    assert conflict(record(1, wanted), by_uid(record(2, other)), BOOT, usable_mib=USABLE) is None


def test_conflict_is_none_when_the_holder_is_of_another_boot_or_the_claim_itself() -> None:
    old = record(2, held(EXCLUSIVE), boot="another")
    own = record(1, held(EXCLUSIVE))
    assert conflict(record(1, held(EXCLUSIVE)), by_uid(old, own), BOOT) is None


def test_conflict_counts_all_holders_and_all_parts_of_the_claim() -> None:
    ones = (record(3, held()), record(2, held()))
    assert conflict(record(1, held(), held()), by_uid(*ones), BOOT, usable_mib=USABLE) is None
    found = conflict(record(1, held(), held(compute_percent=26)), by_uid(*ones), BOOT)
    assert found is not None
    assert found.holder == ref(2)
    assert "beside claims team-a/claim-2, team-a/claim-3: together they hold 101 %" in found.text


def test_conflict_counts_forty_eight_shares_of_one_percent() -> None:
    small = held(compute_percent=1, memory_mib=10)
    others = by_uid(*(record(n, small) for n in range(2, 50)))
    assert conflict(record(1, small), others, BOOT, usable_mib=USABLE) is None


def test_conflict_tells_what_cannot_pass_first() -> None:
    passing, lasting = record(2, held(EXCLUSIVE)), record(3, held(setting="TimeSlicing"))
    found = conflict(record(1, held()), by_uid(passing, lasting), BOOT)
    assert found is not None
    assert (found.holder, found.may_pass) == (ref(3), False)


_USES = st.builds(
    held,
    st.sampled_from(Use),
    gpu=st.sampled_from([uuid(0), uuid(1)]),
    compute_percent=st.integers(1, 60),
    memory_mib=st.integers(1, 6_000),
    share_id=st.sampled_from([None, "a", "b"]),
    setting=st.sampled_from(["MPS", "TimeSlicing", "TimeSlicing=Long", "TimeSlicing=Short"]),
)


@given(_USES, _USES)
def test_conflict_is_symmetric_between_two_claims(one: GpuUse, other: GpuUse) -> None:
    first, second = record(1, one), record(2, other)
    there = conflict(first, by_uid(second), BOOT, usable_mib=USABLE)
    back = conflict(second, by_uid(first), BOOT, usable_mib=USABLE)
    assert (there and there.may_pass) == (back and back.may_pass)


@given(st.lists(_USES, max_size=12))
def test_conflict_keeps_what_is_let_in_within_the_gpu(uses: list[GpuUse]) -> None:
    held_now: dict[str, Record] = {}
    for number, use in enumerate(uses):
        newcomer = record(number, use)
        if conflict(newcomer, held_now, BOOT, usable_mib=USABLE) is None:
            held_now[claim_uid(number)] = newcomer
    for gpu, usable in USABLE.items():
        parts = [
            use
            for each in held_now.values()
            for use in each.uses
            if use.gpu == gpu and use.use is not Use.MONITOR
        ]
        if any(use.use is Use.EXCLUSIVE for use in parts):
            assert len(parts) == 1
        assert sum(use.compute_percent for use in parts) <= 100
        assert sum(use.memory_mib for use in parts) <= usable
        assert len({use.setting.partition("=")[0] for use in parts}) <= 1
        assert len({use.setting for use in parts} - {"TimeSlicing"}) <= 1
