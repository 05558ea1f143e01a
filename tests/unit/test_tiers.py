"""Tiers from the driver and what was proved."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.model.device import Tier
from dra_driver.plan.tiers import driver_branch, share_abilities, share_ability
from tests.builders import gpu, inventory


@pytest.mark.parametrize(
    ("driver", "control_only", "tier", "multi_user", "reason"),
    [
        ("570.133.20", True, Tier.STANDARD, True, ""),
        ("555.58.02", True, Tier.STANDARD, True, ""),
        ("550.163.01", True, Tier.STANDARD, False, ""),
        ("535.261.03", True, Tier.COOPERATIVE, False, "550"),
        ("570.133.20", False, Tier.COOPERATIVE, True, "control socket"),
        ("570.133.20", None, Tier.COOPERATIVE, True, "not proved"),
        (None, True, Tier.COOPERATIVE, False, "unknown version"),
    ],
)
def test_share_ability_promises_what_the_driver_can_keep(
    driver: str | None,
    control_only: bool | None,  # noqa: FBT001
    tier: Tier,
    multi_user: bool,  # noqa: FBT001
    reason: str,
) -> None:
    ability = share_ability(gpu(mps_control_only=control_only), driver, burst_allowed=True)

    assert (ability.tier, ability.mps_multi_user) == (tier, multi_user)
    assert reason in ability.reason
    assert bool(ability.reason) == (tier is not Tier.STANDARD)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"compute_capability": (6, 1)}, "Volta or later"),
        ({"compute_capability": None}, "compute capability"),
        ({"mig_enabled": True}, "MIG mode"),
    ],
)
def test_share_ability_promises_nothing_when_mps_cannot_run(
    changes: dict[str, Any], reason: str
) -> None:
    ability = share_ability(gpu(mps_control_only=True, **changes), "570.133.20", burst_allowed=True)

    assert ability.tier is None
    assert not ability.mps_multi_user
    assert reason in ability.reason
    assert "cannot be shared" in ability.reason


def test_share_abilities_keep_the_order_of_the_inventory() -> None:
    node = inventory(gpu(2, mps_control_only=True), gpu(0), gpu(1))

    abilities = share_abilities(node, burst_allowed=False)

    assert [each.gpu for each in abilities] == [each.uuid for each in node.gpus]
    assert [each.tier for each in abilities] == [Tier.STANDARD, Tier.COOPERATIVE, Tier.COOPERATIVE]
    assert not any(each.burst_allowed for each in abilities)


@pytest.mark.parametrize(
    ("version", "branch"), [("570.133.20", 570), ("615", 615), ("", None), ("r570", None)]
)
def test_driver_branch_is_the_first_number(version: str, branch: int | None) -> None:
    assert driver_branch(version) == branch
