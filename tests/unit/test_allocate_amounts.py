"""How much of a device a request takes, by the device's policies."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from dra_driver.plan.allocate_amounts import fits, taken
from dra_driver.plan.allocate_results import format_amount
from dra_driver.plan.allocate_values import (
    AllocationError,
    CapacityPolicy,
    DeviceId,
    Offer,
    OfferedCapacity,
    SchedulerRules,
)
from tests.unit.allocating import NEW, OLD


def _offer(value: Any = 100, **policy: Any) -> Offer:
    numbers: dict[str, Any] = {
        name: tuple(map(Decimal, number)) if name == "values" else Decimal(number)
        for name, number in policy.items()
    }
    capacity = OfferedCapacity(
        value=Decimal(value), policy=CapacityPolicy(**numbers) if policy else None
    )
    return Offer(
        id=DeviceId("d", "p", "x"), attributes={}, capacity={"x": capacity}, shareable=True
    )


GRID = {"default": 20, "minimum": 10, "maximum": 90, "step": 5}


@pytest.mark.parametrize("rules", [NEW, OLD])
@pytest.mark.parametrize(
    ("asked", "policy", "expected"),
    [
        (None, {}, 100),
        (None, GRID, 20),
        (7, {}, 7),
        (1, GRID, 10),
        (10, GRID, 10),
        (11, GRID, 15),
        (12, {"minimum": 10}, 12),
        (3, {"values": [1, 2, 4, 8]}, 4),
        (4, {"values": [1, 2, 4, 8]}, 4),
        (9, {"values": [1, 2, 4, 8]}, 9),
        (None, {"values": [1, 2], "default": 2}, 2),
    ],
)
def test_request_takes_what_the_policy_says(
    rules: SchedulerRules, asked: int | None, policy: dict[str, Any], expected: int
) -> None:
    wish = {} if asked is None else {"x": Decimal(asked)}
    assert taken(wish, _offer(**policy), rules) == {"x": Decimal(expected)}


@pytest.mark.parametrize("rules", [NEW, OLD])
@pytest.mark.parametrize(
    ("asked", "policy", "held", "taking", "room"),
    [
        (100, {}, 0, 0, True),
        (101, {}, 0, 0, False),
        (60, {}, 30, 10, True),
        (60, {}, 30, 11, False),
        (60, {}, 41, 0, False),
        (90, GRID, 0, 0, True),
        (91, GRID, 0, 0, False),
        (8, {"values": [1, 2, 4, 8]}, 0, 0, True),
        (9, {"values": [1, 2, 4, 8]}, 0, 0, False),
        (None, {"values": [1, 2], "default": 3}, 0, 0, True),
        (95, {"minimum": 10, "maximum": 90}, 0, 0, False),
    ],
)
def test_request_fits_up_to_the_last_unit(
    rules: SchedulerRules,
    asked: int | None,
    policy: dict[str, Any],
    held: int,
    taking: int,
    room: bool,  # noqa: FBT001
) -> None:
    wish = {} if asked is None else {"x": Decimal(asked)}
    counted = {"held": {"x": Decimal(held)}, "taking": {"x": Decimal(taking)}}
    assert fits(wish, _offer(**policy), rules, **counted) is room


def test_request_fits_nowhere_when_the_device_has_no_such_capacity() -> None:
    assert not fits({"y": Decimal(1)}, _offer(), NEW, held={}, taking={})


@pytest.mark.parametrize("rules", [NEW, OLD])
@pytest.mark.parametrize(
    ("asked", "expected"), [("0.2", "0.5"), ("0.5", 1), ("1.2", 3), ("9E0", 9)]
)
def test_request_above_the_minimum_is_counted_in_whole_units(
    rules: SchedulerRules, asked: str, expected: Any
) -> None:
    offer = _offer(minimum="0.5", maximum="90.5", step="1.5", default="2.5")
    assert taken({"x": Decimal(asked)}, offer, rules) == {"x": Decimal(expected)}
    assert fits({"x": Decimal(asked)}, offer, rules, held={}, taking={})


def test_request_is_an_error_where_integers_end() -> None:
    offer = _offer(minimum=1, maximum=90, step=5)
    largest, more = ({"x": Decimal((1 << 63) - left)} for left in (2, 1))
    assert taken(largest, offer, NEW) == largest
    assert not fits(largest, offer, NEW, held={}, taking={})
    with pytest.raises(AllocationError, match="cannot be represented"):
        taken(more, offer, NEW)
    assert not fits(more, offer, OLD, held={}, taking={})


def test_request_is_an_error_when_it_is_negative() -> None:
    with pytest.raises(AllocationError, match="negative"):
        taken({"x": Decimal(-1)}, _offer(), NEW)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        *[("25", "25"), ("1023", "1023"), ("1024", "1Ki"), (str(6 << 30), "6Gi")],
        *[("1.5", "1500m"), ("0.25", "250m"), ("0.00002", "20u"), ("0.000000001", "1n")],
    ],
)
def test_amount_is_spelled_as_a_quantity(amount: str, text: str) -> None:
    assert format_amount(Decimal(amount)) == text
