from __future__ import annotations

import pytest

from dra_driver.model.device import Tier
from dra_driver.model.mps import GpuSharing, Proof
from dra_driver.model.share import ShareAbility
from dra_driver.plan.mps_abilities import supervised_abilities
from tests.builders import gpu, inventory, uuid


def _ability(
    state: GpuSharing, *, proved: bool | None = None, simulated: bool = False
) -> ShareAbility:
    node = inventory(gpu(0, mps_control_only=proved), simulated=simulated)
    (ability,) = supervised_abilities(node, [state], burst_allowed=False, expose_folder=False)
    return ability


@pytest.mark.parametrize(
    ("proof", "before", "tier"),
    [
        (Proof(control_only=True), None, Tier.STANDARD),
        (Proof(control_only=False), True, Tier.COOPERATIVE),
        (Proof(control_only=None, reason="busy"), True, Tier.STANDARD),
        (None, True, Tier.STANDARD),
        (None, None, Tier.COOPERATIVE),
    ],
)
def test_tier_is_that_of_the_newest_proof(
    proof: Proof | None,
    before: bool | None,  # noqa: FBT001
    tier: Tier,
) -> None:
    ability = _ability(GpuSharing(gpu=uuid(0), proof=proof), proved=before)
    assert (ability.tier, ability.burst_allowed) == (tier, False)


def test_tier_is_what_a_simulated_gpu_states_when_that_was_another_once() -> None:
    state = GpuSharing(gpu=uuid(0), proof=Proof(control_only=True))
    assert _ability(state, proved=False, simulated=True).tier is Tier.COOPERATIVE


def test_gpu_is_not_shared_when_the_supervisor_refuses_it() -> None:
    ability = _ability(GpuSharing(gpu=uuid(0), refusal="process 7 computes on it"))
    assert (ability.tier, ability.mps_multi_user) == (None, False)
    assert ability.reason == "cannot be shared: process 7 computes on it"


@pytest.mark.parametrize(
    ("daemon", "multi_user", "told"), [(None, False, True), (7, False, False), (7, True, True)]
)
def test_running_daemon_decides_who_may_share(
    daemon: int | None,
    multi_user: bool,  # noqa: FBT001
    told: bool,  # noqa: FBT001
) -> None:
    state = GpuSharing(gpu=uuid(0), daemon_pid=daemon, multi_user=multi_user)
    assert _ability(state).mps_multi_user == told
