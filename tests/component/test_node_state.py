"""The state machine: prepare, repeat, fail, undo, unprepare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dra_driver.errors import (
    AdapterError,
    ClaimError,
    ClaimRejected,
    DriverNotLoaded,
    NotReady,
    Reason,
)
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import RecordState
from dra_driver.model.share import GpuShare
from dra_driver.plan.naming import spec_name
from dra_driver.ports import Json
from dra_driver.state import codec
from tests import records
from tests.builders import DRIVER, claim_uid, ref, uuid
from tests.component.state_rig import Rig
from tests.fakes.clock import FakeClock

KINDS = (records.SHARE, records.WHOLE, records.SLOW)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_makes_the_plan_real_and_unprepare_leaves_nothing(rig: Rig, kind: str) -> None:
    claim = rig.add(kind=kind)
    devices = rig.prepare(claim)
    assert devices == records.record(kind=kind).devices
    assert rig.state.records() == (records.record(kind=kind),)
    assert rig.has_spec(claim)
    assert bool(rig.shares.shares) == (kind == records.SHARE)
    assert bool(rig.time_slicer.intervals) == (kind == records.SLOW)
    rig.unprepare(claim)
    assert rig.is_clean()


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_journals_before_effects_only_where_they_would_be_forgotten(
    rig: Rig, kind: str
) -> None:
    rig.prepare(rig.add(kind=kind))
    whole = kind == records.WHOLE
    assert rig.journal.log == (["put Prepared"] if whole else ["put Reserved", "put Prepared"])


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_answers_the_same_without_planning_when_repeated(rig: Rig, kind: str) -> None:
    claim = rig.add(kind=kind)
    first = rig.prepare(claim)

    def unreadable(body: Json, reference: ClaimRef) -> PreparePlan:
        raise DriverNotLoaded("the inventory cannot be read")

    rig.planner = unreadable
    rig.shares.broken = AdapterError("the supervisor is away")
    before = list(rig.journal.log)
    assert [rig.prepare(claim) for _ in range(3)] == [first] * 3
    assert (rig.plans, rig.journal.log, rig.specs.writes) == (1, before, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_prepare_runs_all_steps_again_when_the_spec_is_gone(rig: Rig, kind: str) -> None:
    claim = rig.add(kind=kind)
    first = rig.prepare(claim)
    rig.specs.specs.clear()
    rig.shares.shares.clear()
    rig.time_slicer.intervals.clear()
    assert rig.prepare(claim) == first
    assert rig.has_spec(claim)
    assert bool(rig.shares.shares) == (kind == records.SHARE)
    assert bool(rig.time_slicer.intervals) == (kind == records.SLOW)


def test_prepare_takes_nothing_back_when_a_repeat_fails(rig: Rig) -> None:
    claim = rig.add()
    rig.prepare(claim)
    rig.specs.specs.clear()
    rig.specs.broken = AdapterError("the disk is full")
    with pytest.raises(NotReady, match="the disk is full"):
        rig.prepare(claim)
    assert rig.state.records() == (records.record(),)
    assert rig.shares.shares


def test_prepare_refuses_another_claim_of_the_same_name(rig: Rig) -> None:
    claim = rig.add()
    rig.prepare(claim)
    body = records.claim()
    body["metadata"]["uid"] = claim_uid(2)
    rig.claims.add(body)
    with pytest.raises(ClaimRejected) as caught:
        rig.prepare(claim)
    assert caught.value.reason is Reason.CLAIM_REPLACED


@pytest.mark.parametrize(
    ("failure", "kind", "reason"),
    [
        (None, ClaimRejected, Reason.CLAIM_NOT_FOUND),
        (AdapterError("connection refused"), NotReady, Reason.API_UNAVAILABLE),
        (AdapterError("forbidden", permanent=True), NotReady, Reason.API_UNAVAILABLE),
    ],
)
def test_prepare_says_why_when_the_claim_cannot_be_read(
    rig: Rig, failure: AdapterError | None, kind: type[ClaimError], reason: Reason
) -> None:
    rig.claims.down = failure
    with pytest.raises(kind, match="team-a/claim-1") as caught:
        rig.prepare(ref())
    assert caught.value.reason is reason
    assert rig.is_clean()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("broken", ["shares", "time_slicer", "specs", "journal"])
def test_prepare_leaves_nothing_when_a_step_fails(rig: Rig, broken: str, kind: str) -> None:
    if (broken, kind) in {("shares", records.WHOLE), ("shares", records.SLOW)} or (
        broken == "time_slicer" and kind != records.SLOW
    ):
        kind = {"shares": records.SHARE, "time_slicer": records.SLOW}[broken]
    claim = rig.add(kind=kind)
    port = getattr(rig, broken)
    port.broken = AdapterError("it broke: mend it")
    with pytest.raises(NotReady, match=r"cannot prepare claim team-a/claim-1: it broke: mend it"):
        rig.prepare(claim)
    port.broken = None
    if broken in ("shares", "time_slicer"):
        # Undoing met the same failure: the record stays, so that nothing is forgotten.
        assert [each.state for each in rig.state.records()] == [RecordState.RESERVED]
        rig.unprepare(claim)
    assert rig.is_clean()
    assert rig.prepare(claim) == records.record(kind=kind).devices


def test_prepare_tells_its_own_failure_when_undoing_fails_too(rig: Rig) -> None:
    rig.specs.broken = AdapterError("the disk is full")
    texts = iter(["", "cannot undo"])

    def apply(gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        if text := next(texts):
            raise AdapterError(text)

    rig.shares.apply = apply  # type: ignore[method-assign]
    with pytest.raises(NotReady, match="the disk is full"):
        rig.prepare(rig.add())
    assert [record.state for record in rig.state.records()] == [RecordState.RESERVED]


def test_prepare_is_rejected_when_a_step_can_never_succeed(rig: Rig) -> None:
    rig.specs.broken = AdapterError("never", permanent=True)
    with pytest.raises(ClaimRejected):
        rig.prepare(rig.add())
    assert rig.is_clean()


def test_prepare_is_resumed_when_time_ran_out(rig: Rig) -> None:
    claim = rig.add()
    rig.shares.broken = NotReady(Reason.OUT_OF_TIME, "still starting")
    with pytest.raises(NotReady, match="still starting"):
        rig.prepare(claim)
    (left,) = rig.state.records()
    assert left == records.record(state=RecordState.RESERVED)
    assert not rig.has_spec(claim)
    rig.shares.broken = None
    assert rig.prepare(claim) == records.record().devices
    assert (rig.plans, rig.state.records()) == (1, (records.record(),))


def test_prepare_is_not_resumed_while_another_claim_has_its_device(rig: Rig) -> None:
    claim = rig.add()
    rig.shares.broken = NotReady(Reason.OUT_OF_TIME, "still starting")
    with pytest.raises(NotReady, match="still starting"):
        rig.prepare(claim)
    rig.shares.broken, calls = None, rig.shares.calls
    other = records.record(2, kind=records.WHOLE, on=0)
    with rig.journal.transaction() as journal:
        journal.put(other)

    with pytest.raises(NotReady) as caught:
        rig.prepare(claim)
    assert caught.value.reason is Reason.DEVICE_IN_USE
    assert str(other.claim) in str(caught.value)
    assert rig.shares.calls == calls
    assert records.record(state=RecordState.RESERVED) in rig.state.records()

    with rig.journal.transaction() as journal:
        journal.delete(other.claim.uid)
    assert rig.prepare(claim) == records.record().devices


@pytest.mark.parametrize("kind", [records.SHARE, records.WHOLE])
def test_prepare_begins_no_step_when_its_time_is_over(kind: str) -> None:
    clock = FakeClock()
    rig = Rig(clock)
    claim = rig.add(kind=kind)

    def slow(body: Mapping[str, object], reference: ClaimRef) -> PreparePlan:
        clock.advance(60)
        return records.plan(body, reference)

    rig.planner = slow
    with pytest.raises(NotReady) as caught:
        rig.prepare(claim)
    assert caught.value.reason is Reason.OUT_OF_TIME
    assert rig.shares.calls == 0
    assert len(rig.state.records()) == (kind == records.SHARE)
    rig.planner = records.plan
    assert rig.prepare(claim) == records.record(kind=kind).devices


def test_prepare_writes_nothing_when_no_device_is_of_this_driver(rig: Rig) -> None:
    def nothing(body: Mapping[str, object], reference: ClaimRef) -> PreparePlan:
        empty = replace(records.plan(body, reference).record, steps=(), uses=(), devices=())
        return PreparePlan(record=empty)

    rig.planner = nothing
    claim = rig.add()
    assert rig.prepare(claim) == ()
    assert rig.is_clean()
    rig.unprepare(claim)


def test_prepare_tells_warnings_once(rig: Rig) -> None:
    def warned(body: Mapping[str, object], reference: ClaimRef) -> PreparePlan:
        return replace(records.plan(body, reference), warnings=("it holds all memory",))

    rig.planner = warned
    claim = rig.add()
    rig.prepare(claim)
    rig.prepare(claim)
    assert rig.events.emitted == [(claim, "PreparedWithWarning", "it holds all memory")]


def test_shares_of_one_gpu_are_enforced_together(rig: Rig) -> None:
    first, second, elsewhere = rig.add(1), rig.add(2), rig.add(3, on=1)
    for claim in (second, first, elsewhere):
        rig.prepare(claim)
    assert [share.id[:8] for share in rig.shares.shares[uuid(0)]] == ["00000001", "00000002"]
    rig.unprepare(first)
    assert [share.id[:8] for share in rig.shares.shares[uuid(0)]] == ["00000002"]
    rig.unprepare(second)
    assert list(rig.shares.shares) == [uuid(1)]


def test_a_record_of_a_newer_release_is_refused_and_kept(rig: Rig) -> None:
    claim = rig.add()
    content = codec.encode(records.record()).replace("record/v1", "record/v99").encode()
    rig.journal.entries[claim.uid] = content
    with pytest.raises(NotReady, match=r"team-a/claim-1.*newer gpuslice") as caught:
        rig.prepare(claim)
    assert caught.value.reason is Reason.STATE_UNAVAILABLE
    with pytest.raises(NotReady, match="newer gpuslice"):
        rig.unprepare(claim)
    assert rig.journal.entries == {claim.uid: content}
    assert not rig.specs.specs
    assert not rig.shares.shares


def test_specs_are_settled_before_anybody_is_told(rig: Rig) -> None:
    claim = rig.add()
    rig.prepare(claim)
    assert set(rig.specs.settled) == {spec_name(DRIVER, claim.uid)}
    rig.specs.specs.clear()
    rig.specs.settle()
    rig.prepare(claim)
    assert rig.specs.settled == rig.specs.specs != {}
    rig.unprepare(claim)
    assert rig.specs.settled == {}
    rig.specs.write(spec_name(DRIVER, claim.uid), "{}")
    rig.specs.settle()
    rig.unprepare(claim)
    assert rig.specs.settled == {}
