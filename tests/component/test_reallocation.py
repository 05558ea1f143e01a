"""A claim that keeps its UID and gets other devices, while the old ones are still prepared."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.model.deadline import Deadline
from dra_driver.plan.claims import is_allocated_otherwise
from dra_driver.ports import Json
from tests import records
from tests.builders import DRIVER, uuid
from tests.component.state_rig import Rig
from tests.fakes.claims import FakeClaims


def test_prepare_gives_the_new_devices_when_a_claim_was_allocated_anew() -> None:
    rig = Rig()
    claim = rig.add(on=0)
    rig.prepare(claim)
    rig.add(on=1)
    assert rig.prepare(claim) == records.record(1, on=1).devices
    assert rig.state.records() == (records.record(1, on=1),)
    assert list(rig.shares.shares) == [uuid(1)]
    rig.unprepare(claim)
    assert rig.is_clean()


@pytest.mark.parametrize(
    "allocation",
    [None, {}, {"devices": None}, {"devices": {"results": []}}, {"devices": {"results": [7]}}],
)
def test_prepare_repeats_its_answer_when_the_claim_shows_no_devices(allocation: Any) -> None:
    body = records.claim(1) | {"status": {"allocation": allocation}}
    assert not is_allocated_otherwise(body, records.record(1), driver=DRIVER)


@pytest.mark.parametrize("share", ["another", None, {}, [1]])
def test_claims_are_compared_whatever_stands_in_them(share: Any) -> None:
    body = records.claim(1)
    assert not is_allocated_otherwise(body, records.record(1), driver=DRIVER)
    body["status"]["allocation"]["devices"]["results"][0]["shareID"] = share
    assert is_allocated_otherwise(body, records.record(1), driver=DRIVER)


def test_results_of_other_drivers_do_not_count() -> None:
    body = records.claim(1)
    body["status"]["allocation"]["devices"]["results"].append({"driver": "nic.example.com"})
    assert not is_allocated_otherwise(body, records.record(1), driver=DRIVER)


class _Patient(FakeClaims):
    """Remembers how long it may try."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines: list[Deadline] = []

    def get_claim(self, namespace: str, name: str, deadline: Deadline) -> Json:
        self.deadlines.append(deadline)
        return super().get_claim(namespace, name, deadline)


def test_prepare_waits_for_the_api_server_for_a_part_of_its_time() -> None:
    rig = Rig()
    claims = rig.claims = _Patient()
    rig.start()
    now_s = rig.clock.monotonic_s()
    rig.prepare(rig.add(1), seconds=42.0)
    rig.prepare(rig.add(2), seconds=4.0)
    first, second = (each.at_s - now_s for each in claims.deadlines)
    assert 15.0 < first < 25.0
    assert second < 5.0
