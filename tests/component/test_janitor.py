"""Stale claims: collected on certainty only, and not at first sight."""

from __future__ import annotations

from threading import Event, Thread

import pytest

from dra_driver.errors import AdapterError
from dra_driver.loops.janitor import Janitor
from dra_driver.model.claim import ClaimRef
from tests import records
from tests.builders import claim_uid
from tests.component.state_rig import Rig
from tests.waiting import eventually


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def janitor(rig: Rig) -> Janitor:
    return make(rig, interval_s=3600)


def make(rig: Rig, *, interval_s: float) -> Janitor:
    return Janitor(
        state=rig.state,
        claims=rig.claims,
        clock=rig.clock,
        recorder=rig.recorder,
        interval_s=interval_s,
    )


def prepared(rig: Rig) -> ClaimRef:
    claim = rig.add()
    rig.prepare(claim)
    return claim


def sweep(janitor: Janitor, times: int) -> None:
    for _ in range(times):
        janitor.sweep(Event())


def test_janitor_keeps_claims_that_exist(rig: Rig, janitor: Janitor) -> None:
    prepared(rig)
    sweep(janitor, 3)
    assert len(rig.state.records()) == 1


def test_janitor_collects_a_deleted_claim_in_the_second_sweep(rig: Rig, janitor: Janitor) -> None:
    rig.claims.remove(prepared(rig))
    sweep(janitor, 1)
    assert len(rig.state.records()) == 1
    sweep(janitor, 1)
    assert rig.is_clean()
    assert rig.recorder.counted("stale_claims_total") == 1


def test_janitor_collects_a_claim_that_was_made_anew(rig: Rig, janitor: Janitor) -> None:
    prepared(rig)
    body = records.claim()
    body["metadata"]["uid"] = claim_uid(9)
    rig.claims.add(body)
    sweep(janitor, 2)
    assert rig.is_clean()


def test_janitor_starts_over_when_a_claim_was_seen_again(rig: Rig, janitor: Janitor) -> None:
    claim = prepared(rig)
    rig.claims.remove(claim)
    sweep(janitor, 1)
    rig.add()
    sweep(janitor, 1)
    rig.claims.remove(claim)
    sweep(janitor, 1)
    assert len(rig.state.records()) == 1


@pytest.mark.parametrize("permanent", [True, False])
def test_janitor_collects_nothing_when_the_server_does_not_say(
    rig: Rig, janitor: Janitor, *, permanent: bool
) -> None:
    rig.claims.remove(prepared(rig))
    sweep(janitor, 1)
    rig.claims.down = AdapterError("forbidden", permanent=permanent)
    sweep(janitor, 3)
    assert len(rig.state.records()) == 1


def test_janitor_takes_an_answer_that_is_no_claim_for_none(rig: Rig, janitor: Janitor) -> None:
    prepared(rig)
    rig.claims.add({"kind": "Status", "metadata": {"namespace": "team-a", "name": "claim-1"}})
    sweep(janitor, 2)
    assert len(rig.state.records()) == 1


def test_janitor_goes_on_when_a_claim_cannot_be_let_go(rig: Rig, janitor: Janitor) -> None:
    rig.claims.remove(prepared(rig))
    rig.shares.broken = AdapterError("the supervisor is away")
    sweep(janitor, 3)
    assert len(rig.state.records()) == 1
    assert rig.recorder.counted("stale_claims_total") == 0
    rig.shares.broken = None
    sweep(janitor, 1)
    assert rig.is_clean()


def test_janitor_runs_until_it_is_stopped(rig: Rig) -> None:
    rig.claims.remove(prepared(rig))
    stop = Event()
    thread = Thread(target=make(rig, interval_s=0.01).run, args=(stop,), name="janitor")
    thread.start()
    eventually(rig.is_clean, 10, "the stale claim is collected")
    stop.set()
    thread.join(10)
    assert not thread.is_alive()
