"""One container, two shares: found out whichever claim of the pod is prepared first."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from dra_driver.errors import AdapterError, ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.model.plan import PreparePlan
from tests import records
from tests.builders import ref
from tests.component.state_rig import Rig

POD = PodRef("web-0", "pod-0")


def planned(body: Mapping[str, Any], reference: ClaimRef) -> PreparePlan:
    made = records.plan(body, reference)
    return replace(made, record=replace(made.record, pods=(POD,)))


def pod(*containers: tuple[str, ...], uid: str = POD.uid) -> dict[str, Any]:
    """A pod whose containers use these claims."""
    names = {name for container in containers for name in container}
    return {
        "metadata": {"namespace": "team-a", "name": POD.name, "uid": uid},
        "spec": {
            "resourceClaims": [{"name": name, "resourceClaimName": name} for name in names],
            "containers": [
                {"name": f"c{n}", "resources": {"claims": [{"name": name} for name in container]}}
                for n, container in enumerate(containers)
            ],
        },
    }


@pytest.fixture
def rig() -> Rig:
    made = Rig()
    made.planner = planned
    for number in (1, 2):
        made.add(number, on=number)
    return made


def test_second_claim_is_refused_and_leaves_nothing_when_one_container_uses_both(rig: Rig) -> None:
    rig.pods.add(pod(("claim-1", "claim-2")))
    rig.prepare(ref(1))
    assert rig.pods.reads == []
    for _ in range(2):
        with pytest.raises(ClaimRejected, match="container c0 of pod web-0 would get several MPS"):
            rig.prepare(ref(2))
    assert rig.pods.reads == [POD.name] * 2
    assert [rig.has_spec(ref(number)) for number in (1, 2)] == [True, False]
    assert list(rig.journal.entries) == [ref(1).uid]
    rig.unprepare(ref(2))
    rig.unprepare(ref(1))
    assert rig.is_clean()


def test_both_claims_are_prepared_when_each_has_its_container(rig: Rig) -> None:
    rig.pods.add(pod(("claim-1",), ("claim-2",)))
    for number in (1, 2):
        rig.prepare(ref(number))
    assert rig.prepare(ref(2))
    assert rig.pods.reads == [POD.name]


def test_one_claim_at_most_is_prepared_when_both_come_at_once(rig: Rig) -> None:
    rig.pods.add(pod(("claim-1", "claim-2")))
    rig.shares.gate.clear()

    def attempt(number: int) -> bool:
        try:
            return bool(rig.prepare(ref(number)))
        except ClaimError:
            return False

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(attempt, 1)
        assert rig.shares.entered.wait(30)
        second = pool.submit(attempt, 2)
        rig.shares.gate.set()
        assert [first.result(30), second.result(30)] == [True, False]


def test_claim_is_retried_when_the_pod_cannot_be_read(rig: Rig) -> None:
    rig.pods.add(pod(("claim-1",), ("claim-2",)))
    rig.prepare(ref(1))
    rig.pods.down = AdapterError("get Pod team-a/web-0: 403 Forbidden", permanent=True)
    with pytest.raises(NotReady, match=r"which container of pod web-0 uses .*: 403 Forb") as caught:
        rig.prepare(ref(2))
    assert caught.value.reason is Reason.API_UNAVAILABLE
    assert not rig.has_spec(ref(2))
    rig.pods.down = None
    assert rig.prepare(ref(2))
    assert rig.pods.reads == [POD.name] * 2


@pytest.mark.parametrize("bodies", [[], [pod(("claim-1", "claim-2"), uid="its successor")]])
def test_pod_that_is_gone_refuses_nothing(rig: Rig, bodies: list[dict[str, Any]]) -> None:
    for body in bodies:
        rig.pods.add(body)
    for number in (1, 2):
        assert rig.prepare(ref(number))
    assert rig.pods.reads == [POD.name]
