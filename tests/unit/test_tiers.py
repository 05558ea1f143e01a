"""Tiers from the driver and what was proved."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.model.device import Tier
from dra_driver.model.share import Expose
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


@pytest.mark.parametrize(
    ("driver", "control_only", "expose"),
    [
        ("570.133.20", True, Expose.CONTROL),
        ("570.133.20", False, Expose.FOLDER),
        ("570.133.20", None, Expose.FOLDER),
        ("535.261.03", True, Expose.CONTROL),
        ("535.261.03", None, Expose.FOLDER),
    ],
)
def test_share_ability_exposes_the_control_socket_alone_only_when_that_was_proved(
    driver: str,
    control_only: bool | None,  # noqa: FBT001
    expose: Expose,
) -> None:
    facts = gpu(mps_control_only=control_only)
    assert share_ability(facts, driver, burst_allowed=True).expose is expose


@pytest.mark.parametrize("driver", ["570.133.20", "535.261.03"])
def test_share_ability_is_cooperative_and_exposes_the_folder_when_the_setting_asks(
    driver: str,
) -> None:
    facts = gpu(mps_control_only=True)
    ability = share_ability(facts, driver, burst_allowed=True, expose_folder=True)
    assert (ability.tier, ability.expose) == (Tier.COOPERATIVE, Expose.FOLDER)
    assert ("--mps-expose-folder" in ability.reason) == (driver == "570.133.20")


@pytest.mark.parametrize("changes", [{}, {"compute_capability": (6, 1)}])
def test_share_ability_is_of_no_tier_when_the_node_shares_by_time_slicing(
    changes: dict[str, Any],
) -> None:
    facts = gpu(mps_control_only=True, **changes)
    ability = share_ability(facts, "570.133.20", burst_allowed=True, time_slicing=True)
    assert (ability.tier, ability.mps_multi_user, ability.burst_allowed) == (Tier.NONE, False, True)
    assert "time-slicing (--sharing)" in ability.reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"mig_enabled": True}, "MIG mode"), ({"memory_total_bytes": None}, "not tell its memory")],
)
def test_share_ability_is_none_when_a_part_cannot_even_be_time_sliced(
    changes: dict[str, Any], reason: str
) -> None:
    ability = share_ability(gpu(**changes), "570", burst_allowed=True, time_slicing=True)
    assert ability.tier is None
    assert reason in ability.reason


def test_share_abilities_pass_the_settings_of_the_node_on() -> None:
    node = inventory(gpu(0, mps_control_only=True))
    (exposed,) = share_abilities(node, burst_allowed=True, expose_folder=True)
    (sliced,) = share_abilities(node, burst_allowed=True, time_slicing=True)
    assert (exposed.expose, sliced.tier) == (Expose.FOLDER, Tier.NONE)


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
