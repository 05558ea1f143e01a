"""Two schedulers' answers, and whether they are one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import GpusliceError
from dra_driver.model.quantity import parse_quantity
from dra_driver.plan.allocate import Allocated, Refused
from dra_driver.plan.allocate_values import SchedulerPanicError
from dra_driver.sim.allocator import Allocator
from tests.scheduler.values import Json, Target

ALLOCATED = "allocated"
REFUSED = "refused"
FAILED = "failed"
PANIC = "panic"
"""Kinds of answers: FAILED: the attempt ended with an error; PANIC: so did the scheduler."""

_SLICES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a scheduler decided for a pod.

    Attributes:
        allocations: per claim, as `comparable` gives them.
        text: of a refusal or an error; for people, and not compared.
    """

    kind: str
    allocations: tuple[Json, ...] = ()
    text: str = ""

    def same(self, other: Answer) -> bool:
        return (self.kind, self.allocations) == (other.kind, other.allocations)

    def json(self) -> Json:
        body = {"kind": self.kind, "allocations": list(self.allocations), "text": self.text}
        return {key: value for key, value in body.items() if value}


class StandIn:
    """The embedded scheduler, with compiled selectors kept."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._allocator = Allocator(target.rules)

    def answers(self, document: Json) -> tuple[Answer, ...]:
        """Give every answer that is right.

        From 1.35 on there is one. 1.34 visits a pool's slices in an order of its own at each
        attempt, so there is one for each order.
        """
        slices = tuple(document["slices"])
        assert len(slices) <= _SLICES_MAX, f"{len(slices)} slices have too many orders to try"
        orders = itertools.permutations(slices) if self._target.rules.first else [slices]
        found: list[Answer] = []
        for order in orders:
            answer = self._answer({**document, "slices": order})
            if not any(answer.same(each) for each in found):
                found.append(answer)
        return tuple(found)

    def _answer(self, document: Json) -> Answer:
        try:
            decided = self._allocator.allocate(
                document["claims"],
                node=document["node"],
                slices=document["slices"],
                classes=document["classes"],
                others=document["others"],
            )
        except SchedulerPanicError as error:
            return Answer(kind=PANIC, text=str(error))
        except GpusliceError as error:
            return Answer(kind=FAILED, text=str(error))
        match decided:
            case Allocated(allocations=allocations):
                return allocated(allocations)
            case Refused(reason=reason):
                return Answer(kind=REFUSED, text=reason)


def allocated(allocations: Iterable[Json]) -> Answer:
    return Answer(kind=ALLOCATED, allocations=tuple(map(comparable, allocations)))


def comparable(allocation: Json) -> Json:
    """Give what two right allocations have in common: all but when, which id, and spelling."""
    body = {key: value for key, value in allocation.items() if key != "allocationTimestamp"}
    devices = dict(body["devices"])
    devices["results"] = [_result(each) for each in devices["results"]]
    return {**body, "devices": devices}


def _result(result: Json) -> Json:
    body = dict(result)
    if "shareID" in body:
        body["shareID"] = "some"
    if "consumedCapacity" in body:
        body["consumedCapacity"] = {
            name: _spell(amount) for name, amount in sorted(body["consumedCapacity"].items())
        }
    return body


def _spell(amount: Any) -> str:
    return f"{parse_quantity(str(amount)).normalize():f}"
