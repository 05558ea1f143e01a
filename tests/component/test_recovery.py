"""What a start finds and what it makes of it: crash, wiped folders, reboot, rolling update."""

from __future__ import annotations

import json

import pytest

from dra_driver.errors import AdapterError, NotReady
from dra_driver.model.record import Record, RecordState
from dra_driver.state import codec
from tests import records
from tests.builders import claim_uid, ref, uuid
from tests.component.state_rig import Rig

OTHER_BOOT = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def rig() -> Rig:
    return Rig()


def plant(rig: Rig, *planted: Record) -> None:
    for record in planted:
        rig.journal.entries[record.claim.uid] = codec.encode(record).encode()


def recover(rig: Rig, *gpus: int) -> tuple[str, ...]:
    return rig.start().recover(rig.within(), gpus=tuple(map(uuid, gpus)))


def test_recover_restores_specs_and_shares_of_prepared_claims(rig: Rig) -> None:
    plant(rig, records.record(1), records.record(2), records.record(3, kind=records.WHOLE, on=1))
    assert recover(rig) == ()
    assert all(rig.has_spec(ref(number)) for number in (1, 2, 3))
    assert len(rig.shares.shares[uuid(0)]) == 2
    assert rig.shares.calls == 1
    assert len(rig.state.records()) == 3


def test_recover_does_not_wait_long_for_a_supervisor_that_is_away(rig: Rig) -> None:
    plant(rig, records.record(1), records.record(2, on=1))
    rig.shares.broken = AdapterError("mpsd is away")
    assert len(recover(rig, 0, 1)) == 2
    assert rig.has_spec(ref(1))
    assert all(each.remaining_s(rig.clock.monotonic_s()) <= 2 for each in rig.shares.deadlines)


def test_assert_shares_gives_each_gpu_what_the_journal_says(rig: Rig) -> None:
    plant(rig, records.record(1), records.record(2), records.record(3, boot_id=OTHER_BOOT))
    rig.state._executor.run(records.record(4, on=3), {}, rig.within())
    assert rig.state.assert_shares(rig.within(), gpus=(uuid(0), uuid(3))) == ()
    assert list(rig.shares.shares) == [uuid(0)]
    assert len(rig.shares.shares[uuid(0)]) == 2
    assert not rig.has_spec(ref(1))
    rig.shares.broken = AdapterError("mpsd is away")
    (problem,) = rig.state.assert_shares(rig.within())
    assert problem == f"shares of GPU {uuid(0)}: mpsd is away"


def test_recover_writes_nothing_when_all_is_well(rig: Rig) -> None:
    rig.prepare(rig.add())
    rig.specs.writes, rig.journal.log = 0, []
    assert recover(rig, 0) == ()
    assert (rig.specs.writes, rig.journal.log) == (0, [])


@pytest.mark.parametrize("kind", [records.SHARE, records.SLOW])
def test_recover_undoes_what_a_dead_process_had_begun(rig: Rig, kind: str) -> None:
    half = records.record(1, kind=kind, state=RecordState.RESERVED)
    plant(rig, half, records.record(2, on=1))
    rig.state._executor.run(half, {}, rig.within())
    assert recover(rig) == ()
    assert [record.claim for record in rig.state.records()] == [ref(2)]
    assert list(rig.shares.shares) == [uuid(1)]
    assert not rig.time_slicer.intervals
    assert not rig.has_spec(ref(1))


def test_recover_takes_shares_off_gpus_that_no_record_speaks_of(rig: Rig) -> None:
    plant(rig, records.record(1))
    rig.state._executor.run(records.record(2, on=3), {}, rig.within())
    assert recover(rig, 0, 3) == ()
    assert list(rig.shares.shares) == [uuid(0)]


def test_recover_removes_specs_of_claims_that_it_does_not_know(rig: Rig) -> None:
    plant(rig, records.record(1))
    rig.specs.write(f"gpuslice.io-claim_{claim_uid(7)}", "{}")
    rig.specs.specs["nvidia.yaml"] = "theirs"
    assert recover(rig) == ()
    assert rig.has_spec(ref(1))
    assert not rig.has_spec(ref(7))
    assert rig.specs.specs["nvidia.yaml"] == "theirs"


def test_recover_keeps_the_spec_of_a_claim_of_a_newer_release(rig: Rig) -> None:
    content = codec.encode(records.record(1)).replace("record/v1", "record/v2").encode()
    rig.journal.entries[claim_uid(1)] = content
    rig.specs.write(f"gpuslice.io-claim_{claim_uid(1)}", "{}")
    assert recover(rig) == ()
    assert rig.has_spec(ref(1))
    assert rig.journal.entries == {claim_uid(1): content}


def of_newer_release(record: Record, **changes: object) -> bytes:
    body = json.loads(codec.encode(record)) | {"version": "gpuslice.io/record/v2"} | changes
    return json.dumps(body).encode()


def test_a_newer_releases_share_is_kept_when_others_come_and_go(rig: Rig) -> None:
    theirs = records.record(1)
    rig.state._executor.run(theirs, {}, rig.within())
    before = rig.shares.shares[uuid(0)]
    rig.journal.entries[claim_uid(1)] = of_newer_release(theirs)
    assert recover(rig, 0) == ()
    assert rig.shares.shares[uuid(0)] == before
    rig.prepare(rig.add(2))
    assert len(rig.shares.shares[uuid(0)]) == 2
    rig.unprepare(ref(2))
    assert rig.shares.shares[uuid(0)] == before


def test_a_newer_releases_gpu_is_given_to_nobody_else(rig: Rig) -> None:
    rig.journal.entries[claim_uid(1)] = of_newer_release(records.record(1, kind=records.WHOLE))
    with pytest.raises(NotReady, match="team-a/claim-1"):
        rig.prepare(rig.add(2), seconds=1)


def test_nothing_is_taken_from_a_gpu_when_it_cannot_be_told_what_a_newer_release_holds(
    rig: Rig,
) -> None:
    theirs = records.record(1)
    rig.state._executor.run(theirs, {}, rig.within())
    before = rig.shares.shares[uuid(0)]
    rig.journal.entries[claim_uid(1)] = of_newer_release(theirs, uses="see elsewhere")
    (problem,) = recover(rig, 0)
    assert "newer gpuslice" in problem
    with pytest.raises(NotReady, match="newer gpuslice"):
        rig.prepare(rig.add(2))
    assert rig.shares.shares[uuid(0)] == before


def test_recover_trusts_nothing_of_another_boot(rig: Rig) -> None:
    old = records.record(1, boot_id=OTHER_BOOT)
    reserved = records.record(2, state=RecordState.RESERVED, boot_id=OTHER_BOOT)
    plant(rig, old, reserved)
    rig.specs.write(f"gpuslice.io-claim_{claim_uid(1)}", "{}")
    assert recover(rig, 0) == ()
    assert rig.state.records() == (old, reserved)
    assert not rig.specs.specs
    assert not rig.shares.shares


def test_a_record_of_another_boot_blocks_nobody_and_is_prepared_anew(rig: Rig) -> None:
    plant(rig, records.record(1, kind=records.WHOLE, boot_id=OTHER_BOOT))
    newcomer = rig.add(2, on=0)
    assert rig.prepare(newcomer)
    rig.unprepare(newcomer)
    comes_back = rig.add(1, kind=records.SHARE, on=1)
    plant(rig, records.record(1, kind=records.SHARE, on=1, boot_id=OTHER_BOOT))
    assert rig.prepare(comes_back) == records.record(1, on=1).devices
    assert list(rig.shares.shares) == [uuid(1)]
    assert rig.state.records() == (records.record(1, on=1),)


def test_a_record_of_another_boot_is_unprepared_without_touching_hardware(rig: Rig) -> None:
    plant(rig, records.record(1, boot_id=OTHER_BOOT), records.record(2))
    rig.shares.broken = AdapterError("must not be asked")
    rig.unprepare(ref(1))
    assert rig.state.records() == (records.record(2),)


def test_recover_goes_on_when_one_gpu_cannot_be_restored(rig: Rig) -> None:
    plant(rig, records.record(1), records.record(2, state=RecordState.RESERVED, on=1))
    rig.shares.broken = AdapterError("the supervisor is away")
    problems = recover(rig)
    assert len(problems) == 3
    assert all("the supervisor is away" in problem for problem in problems)
    assert rig.has_spec(ref(1))
    assert rig.recorder.counted("recovery_problems_total") == 3
    assert {record.state for record in rig.state.records()} == set(RecordState)


def test_recover_leaves_a_claim_alone_that_another_process_works_on(rig: Rig) -> None:
    half = records.record(1, state=RecordState.RESERVED)
    plant(rig, half)
    rig.specs.write(f"gpuslice.io-claim_{claim_uid(5)}", "{}")
    with rig.locks.claim(claim_uid(1), rig.within()), rig.locks.claim(claim_uid(5), rig.within()):
        problems = recover(rig)
    assert len(problems) == 2
    assert rig.state.records() == (half,)
    assert rig.has_spec(ref(5))


def test_recover_fails_when_the_journal_cannot_be_read(rig: Rig) -> None:
    class Broken:
        def view(self) -> None:
            raise AdapterError("no journal")

    rig.journal = Broken()  # type: ignore[assignment]
    with pytest.raises(AdapterError, match="no journal"):
        recover(rig)


def test_a_stopped_prepare_is_undone_before_others_wait_for_it(rig: Rig) -> None:
    plant(rig, records.record(1, kind=records.SLOW, state=RecordState.RESERVED))
    newcomer = rig.add(2)
    with pytest.raises(NotReady):
        rig.prepare(newcomer, seconds=0.3)
    recover(rig)
    assert rig.prepare(newcomer)


def test_recovery_settles_the_specs_that_it_wrote(rig: Rig) -> None:
    claim = rig.add()
    rig.prepare(claim)
    rig.specs.specs.clear()
    rig.specs.settle()
    rig.start().recover(rig.within())
    assert rig.specs.settled == rig.specs.specs != {}
