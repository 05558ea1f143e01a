"""The cases themselves, and what they say about the embedded scheduler without another one."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests import manifests
from tests.scheduler.cases import random_case
from tests.scheduler.claims import classes
from tests.scheduler.compare import ALLOCATED, FAILED, PANIC, REFUSED, Answer, StandIn, allocated
from tests.scheduler.values import TARGETS, Case, Json, Target

SHARING = [each for each in TARGETS if each.sharing]
CLASSES = (*manifests.read(manifests.BASE / "deviceclasses.yaml"), *classes())
CASES = 30


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_case_is_the_same_for_seed_and_number(target: Target) -> None:
    cases = [random_case(5, 7, target) for _ in range(2)]
    others = [random_case(seed, number, target) for seed, number in ((5, 8), (6, 7))]
    assert cases[0] == cases[1]
    assert cases[0].pods not in [each.pods for each in others]


@pytest.mark.parametrize("target", SHARING, ids=str)
def test_cases_are_of_every_kind(target: Target) -> None:
    kinds: Counter[str] = Counter()
    for number in range(CASES):
        answers = list(_play(random_case(1, number, target), StandIn(target)))
        kinds.update(each.kind for each in answers)
    assert kinds[ALLOCATED] > sum(kinds.values()) // 4
    assert kinds[REFUSED] > 0
    assert kinds[FAILED] > 0


def test_published_pools_never_let_kube_scheduler_die() -> None:
    target = TARGETS[1]
    stand_in = StandIn(target)
    published = [
        case for number in range(2 * CASES) if (case := random_case(2, number, target)).published
    ]
    for case in published:
        assert PANIC not in [each.kind for each in _play(case, stand_in)], case.number


def test_answers_differ_in_devices_and_amounts_but_not_in_ids() -> None:
    def answer(**result: Any) -> Answer:
        usual = {"device": "a", "shareID": "1", "consumedCapacity": {"memory": "1Gi"}}
        return allocated([{"devices": {"results": [usual | result]}}])

    assert answer().same(answer(shareID="2", consumedCapacity={"memory": "1024Mi"}))
    assert not answer().same(answer(device="b"))
    assert not answer().same(answer(consumedCapacity={"memory": "2Gi"}))
    assert not answer().same(Answer(kind=REFUSED))


def _play(case: Case, stand_in: StandIn) -> Iterator[Answer]:
    """Give every answer of the embedded scheduler, which goes on with the first for each pod."""
    held: dict[int, list[Json]] = {}
    ids = itertools.count()
    for number, pod in enumerate(case.pods):
        for other in pod.after:
            held.pop(other, None)
        claims = [
            _object(f"claim-{index}", {"devices": each}) for index, each in enumerate(pod.claims)
        ]
        answers = stand_in.answers(
            {
                "node": case.node,
                "slices": [_object(f"slice-{n}", each) for n, each in enumerate(case.slices)],
                "classes": CLASSES,
                "claims": claims,
                "others": [each for of_pod in held.values() for each in of_pod],
            }
        )
        yield from answers
        if answers[0].kind == ALLOCATED:
            held[number] = [
                {**claim, "status": {"allocation": _with_ids(allocation, ids)}}
                for claim, allocation in zip(claims, answers[0].allocations, strict=True)
            ]


def _with_ids(allocation: Json, ids: Iterator[int]) -> Json:
    copy: Json = json.loads(json.dumps(allocation))
    for result in copy["devices"]["results"]:
        if "shareID" in result:
            result["shareID"] = str(next(ids))
    return copy


def _object(name: str, spec: Json) -> Json:
    return {"metadata": {"name": name}, "spec": spec}
