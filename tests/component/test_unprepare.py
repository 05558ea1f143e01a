"""The way back: unprepare needs the journal alone, is harmless to repeat, and never gives up."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.adapters.locks import FileLocks
from dra_driver.errors import AdapterError, GpusliceError, NotReady, Reason
from tests.builders import claim_uid, ref
from tests.component.state_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("times", [1, 2])
def test_unprepare_of_an_unknown_claim_succeeds_and_removes_its_stray_spec(
    rig: Rig, times: int
) -> None:
    other = rig.add(2, on=1)
    rig.prepare(other)
    rig.specs.write(f"gpuslice.io-claim_{claim_uid(1)}", "{}")
    for _ in range(times):
        rig.unprepare(ref(1))
    assert not rig.has_spec(ref(1))
    assert rig.has_spec(other)
    assert rig.events.emitted == []


def test_unprepare_needs_no_api_server(rig: Rig) -> None:
    claim = rig.add()
    rig.prepare(claim)
    rig.claims.down = AdapterError("connection refused")
    reads = rig.claims.reads
    rig.start().unprepare(claim, rig.within())
    assert rig.is_clean()
    assert rig.claims.reads == reads


def test_unprepare_succeeds_when_the_spec_is_gone_already(rig: Rig) -> None:
    claim = rig.add()
    rig.prepare(claim)
    rig.specs.specs.clear()
    rig.unprepare(claim)
    assert rig.is_clean()


@pytest.mark.parametrize(
    "failure", [AdapterError("the supervisor is away"), NotReady(Reason.OUT_OF_TIME, "too slow")]
)
def test_unprepare_that_fails_is_told_and_finished_by_the_retry(
    rig: Rig, failure: GpusliceError
) -> None:
    claim = rig.add()
    rig.prepare(claim)
    rig.shares.broken = failure
    with pytest.raises(NotReady, match=str(failure)):
        rig.unprepare(claim)
    (event,) = rig.events.emitted
    assert event[:2] == (claim, "FailedUnprepare")
    assert str(failure) in event[2]
    assert not rig.has_spec(claim)
    assert len(rig.state.records()) == 1
    rig.shares.broken = None
    rig.unprepare(claim)
    assert rig.is_clean()


def test_prepare_after_a_half_unprepare_makes_the_claim_whole_again(rig: Rig) -> None:
    claim = rig.add()
    first = rig.prepare(claim)
    rig.shares.broken = AdapterError("after the share was taken away")
    with pytest.raises(NotReady):
        rig.unprepare(claim)
    assert not rig.shares.shares
    rig.shares.broken = None
    assert rig.prepare(claim) == first
    assert rig.shares.shares


def test_both_ways_say_of_which_claim_when_the_state_folder_cannot_be_written() -> None:
    rig = Rig()
    claim = rig.add()
    rig.locks = FileLocks(Path("/sys/gpuslice"), clock=rig.clock)  # type: ignore[assignment]
    rig.start()
    with pytest.raises(NotReady, match=r"cannot prepare claim team-a/claim-1: .*--state-dir"):
        rig.prepare(claim)
    with pytest.raises(NotReady, match=r"cannot unprepare claim team-a/claim-1: .*--state-dir"):
        rig.unprepare(claim)
    assert [reason for _, reason, _ in rig.events.emitted] == ["FailedUnprepare"]
