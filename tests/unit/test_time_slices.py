"""Time slices that shares ask for: set for the GPU, agreed on by its shares, given back at last."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.errors import ClaimRejected
from dra_driver.model.device import Tier
from dra_driver.model.record import Record
from dra_driver.model.share import TimeSlice
from dra_driver.model.steps import EnsureShare, SetTimeSlice, Step, WriteCdiSpec
from dra_driver.plan.overlap import conflict
from dra_driver.plan.prepare import plan_unprepare
from dra_driver.plan.tiers import share_abilities
from tests.builders import BOOT, claim_json, share_result, uuid
from tests.unit.planning import (
    TWO_GPUS,
    ability,
    config,
    device,
    only_share,
    parameters,
    plan,
    request,
    share_claim,
)


def sliced(interval: str | None = None, *, number: int = 1) -> Record:
    fields = {"sharing": "TimeSlicing"} | ({"timeSlice": interval} if interval else {})
    obj = share_claim(configs=[config(parameters(**fields))], number=number)
    return plan(obj, number=number).record


def kinds(steps: tuple[Step, ...]) -> list[type[Step]]:
    return [type(step) for step in steps]


def test_share_sets_the_time_slice_of_its_gpu_when_asked() -> None:
    record = sliced("Long")
    assert SetTimeSlice(gpu=uuid(0), interval=TimeSlice.LONG) in record.steps
    assert kinds(record.steps) == [EnsureShare, SetTimeSlice, WriteCdiSpec]
    assert record.uses[0].setting == "TimeSlicing=Long"


def test_share_sets_no_time_slice_when_none_is_asked() -> None:
    record = sliced()
    assert kinds(record.steps) == [EnsureShare, WriteCdiSpec]
    assert kinds(plan_unprepare(record, {})) == [WriteCdiSpec, EnsureShare]


def test_unprepare_keeps_the_time_slice_until_the_last_that_asked_for_it() -> None:
    first, second, other = sliced("Long"), sliced("Long", number=2), sliced(number=3)
    everyone = {each.claim.uid: each for each in (first, second, other)}
    assert SetTimeSlice not in kinds(plan_unprepare(first, everyone))
    del everyone[first.claim.uid]
    assert SetTimeSlice in kinds(plan_unprepare(second, everyone))


@pytest.mark.parametrize(
    ("mine", "theirs", "agree"),
    [("Long", "Short", False), ("Long", "Long", True), ("Long", None, True), (None, "Long", True)],
)
def test_shares_of_one_gpu_agree_on_its_time_slice(
    mine: str | None, theirs: str | None, *, agree: bool
) -> None:
    other = sliced(theirs, number=2)
    found = conflict(sliced(mine), {other.claim.uid: other}, BOOT)
    assert (found is None) is agree
    if found is not None:
        assert "claim team-a/claim-2 holds" in found.text
        assert f"TimeSlicing={theirs}" in found.text


def two_shares(first: str, second: str) -> dict[str, Any]:
    return claim_json(
        results=[share_result(device(), request=f"r{n}", share=n) for n in (0, 1)],
        requests=[request(f"r{n}", compute="25", memory="6Gi") for n in (0, 1)],
        config=[
            config(parameters(sharing="TimeSlicing", timeSlice=interval), f"r{n}")
            for n, interval in enumerate((first, second))
        ],
    )


def test_two_shares_of_one_claim_set_the_time_slice_once_and_must_agree() -> None:
    assert kinds(plan(two_shares("Long", "Long")).record.steps) == [
        EnsureShare,
        SetTimeSlice,
        EnsureShare,
        WriteCdiSpec,
    ]
    with pytest.raises(ClaimRejected, match="these are TimeSlicing=Long and TimeSlicing=Short"):
        plan(two_shares("Long", "Short"))


def test_share_is_time_sliced_and_says_so_when_the_node_shares_by_time_slicing() -> None:
    abilities = share_abilities(TWO_GPUS, burst_allowed=True, time_slicing=True)
    made = plan(share_claim(), abilities=abilities)
    assert only_share(made).sharing == "TimeSlicing"
    assert made.record.uses[0].setting == "TimeSlicing"
    assert made.notes[0].endswith(
        "25 % compute and 6144 MiB: sharing TimeSlicing, tier none: shares take turns, and neither "
        "amounts nor qos are enforced"
    )
    for fields in ({"minimumTier": "cooperative"}, {"sharing": "MPS"}):
        with pytest.raises(ClaimRejected, match=r"time-slicing \(--sharing\)"):
            plan(share_claim(configs=[config(parameters(**fields))]), abilities=abilities)


def test_note_tells_the_time_slice() -> None:
    obj = share_claim(configs=[config(parameters(sharing="TimeSlicing", timeSlice="Medium"))])
    made = plan(obj, abilities=(ability(tier=Tier.STANDARD),))
    assert "sharing TimeSlicing, time slice Medium, tier none" in made.notes[0]
    assert made.notes[0].endswith(", by claim config 0")
