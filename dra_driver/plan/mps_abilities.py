"""What sharing of each GPU can promise, given what the supervisor of MPS tells of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dra_driver.model.device import GpuFacts, GpuUuid, Inventory
from dra_driver.model.mps import GpuSharing
from dra_driver.model.share import ShareAbility
from dra_driver.plan.tiers import share_abilities

UNKNOWN_GPU = "the supervisor of MPS does not know this GPU yet"


def supervised_abilities(
    inventory: Inventory,
    states: Iterable[GpuSharing],
    *,
    burst_allowed: bool,
    expose_folder: bool,
) -> tuple[ShareAbility, ...]:
    """Give one ability for each GPU of `inventory`, in its order.

    A GPU that MPS cannot run on, or that `states` do not have, is not shared.
    """
    known = {state.gpu: state for state in states}
    if not inventory.simulated:
        # Simulated GPUs state what a proof would find, and may state something else later.
        inventory = replace(inventory, gpus=tuple(_proved(gpu, known) for gpu in inventory.gpus))
    abilities = share_abilities(inventory, burst_allowed=burst_allowed, expose_folder=expose_folder)
    return tuple(_limited(ability, known.get(ability.gpu)) for ability in abilities)


def _proved(gpu: GpuFacts, known: dict[GpuUuid, GpuSharing]) -> GpuFacts:
    state = known.get(gpu.uuid)
    if state is None or state.proof is None or state.proof.control_only is None:
        return gpu
    return replace(gpu, mps_control_only=state.proof.control_only)


def _limited(ability: ShareAbility, state: GpuSharing | None) -> ShareAbility:
    if ability.tier is None:
        return ability
    refusal = UNKNOWN_GPU if state is None else state.refusal
    if refusal:
        return replace(
            ability, tier=None, mps_multi_user=False, reason=f"cannot be shared: {refusal}"
        )
    if state is not None and state.daemon_pid is not None and not state.multi_user:
        return replace(ability, mps_multi_user=False)
    return ability
