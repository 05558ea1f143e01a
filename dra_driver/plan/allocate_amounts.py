"""How much a request takes of a device, and whether it is there.

Source: k8s.io/dynamic-resource-allocation v0.34.4 and v0.37.2, structured, consumable_capacity.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from dra_driver.plan.allocate_values import (
    AllocationError,
    CapacityPolicy,
    Offer,
    OfferedCapacity,
    SchedulerRules,
)

Amounts = Mapping[str, Decimal]

_INT64_MAX = (1 << 63) - 1
_NOTHING = Decimal(0)


def taken(asked: Amounts, offer: Offer, rules: SchedulerRules) -> dict[str, Decimal]:
    """What a request takes of each capacity of a device, asked or not.

    Raises:
        AllocationError: an amount cannot be counted, or is negative; 1.34 knows no such errors.
    """
    amounts = {}
    for name, capacity in offer.capacity.items():
        amount = _rounded(name, asked.get(name), capacity, rules)
        if amount < 0 and not rules.first:
            raise AllocationError(f'capacity "{name}": capacity value is negative')
        amounts[name] = amount
    return amounts


def fits(
    asked: Amounts,
    offer: Offer,
    rules: SchedulerRules,
    *,
    held: Amounts,
    taking: Amounts,
) -> bool:
    """Whether the device has what is asked beside what is held and about to be taken.

    A name that the device does not have literally fits nowhere; a device that is not shareable is
    asked for its size only, for nothing is counted on it.

    Raises:
        AllocationError: as `taken`.
    """
    if any(name not in offer.capacity for name in asked):
        return False
    for name, amount in taken(asked, offer, rules).items():
        capacity = offer.capacity[name]
        if capacity.policy is not None and _violates(amount, capacity.policy):
            return False
        total = amount + held.get(name, _NOTHING) + taking.get(name, _NOTHING)
        if total > capacity.value:
            return False
    return True


def _rounded(
    name: str, asked: Decimal | None, capacity: OfferedCapacity, rules: SchedulerRules
) -> Decimal:
    policy = capacity.policy
    if asked is None:
        default = policy.default if policy else None
        return capacity.value if default is None else default
    if policy is None:
        return asked
    if policy.minimum is not None:
        return _on_the_grid(name, asked, policy, rules)
    return next((value for value in policy.values if asked <= value), asked)


def _on_the_grid(
    name: str, asked: Decimal, policy: CapacityPolicy, rules: SchedulerRules
) -> Decimal:
    """Round up to whole steps above the minimum, all counted in whole units.

    Thousandths are counted from 1.37 on, but by default not yet (DRAFractionalCapacityRange). Where
    integers end, 1.34 goes on with a wrong number, which the pads of a pool keep from fitting;
    here it is the right one, which fits nowhere.
    """
    low = policy.minimum or _NOTHING
    if asked < low:
        return low
    if policy.step is None:
        return asked
    low, step = _ceiling(low), _ceiling(policy.step)
    amount = low + step * _ceiling((_ceiling(asked) - low) / step)
    if amount > _INT64_MAX and not rules.first:
        raise AllocationError(
            f'capacity "{name}": capacity request cannot be represented in the device\'s range'
            f" arithmetic: {asked}"
        )
    return amount


def _violates(amount: Decimal, policy: CapacityPolicy) -> bool:
    if policy.default is not None and amount == policy.default:
        return False
    if policy.values:
        return amount not in policy.values
    if policy.maximum is not None and amount > policy.maximum:
        return True
    if policy.step is None:
        return False
    low, step = policy.minimum or _NOTHING, policy.step
    return bool((_ceiling(amount) - _ceiling(low)) % _ceiling(step))


def _ceiling(value: Decimal) -> Decimal:
    return value.to_integral_value(ROUND_CEILING)
