"""What sharing of a GPU can promise, given its driver and what was proved about it.

Source: CUDA MPS guide ("Limitations", "Volta MPS"), and control daemons of 535.261, 550.163 and
555.58 as measured: before 550 any user changes limits through the `control` socket; from 550 only
`control_privileged` takes settings, so exposing `control` alone keeps them; `-multiuser-server`
exists from 555.
"""

from __future__ import annotations

import re

from dra_driver.model.device import GpuFacts, Inventory, Tier
from dra_driver.model.share import Expose, ShareAbility

MPS_CAPABILITY = (7, 0)
"""Volta: the first whose MPS clients have address spaces and limits of their own."""

_PRIVILEGED_SOCKET_BRANCH = 550
_MULTI_USER_BRANCH = 555


def share_abilities(
    inventory: Inventory,
    *,
    burst_allowed: bool,
    expose_folder: bool = False,
    time_slicing: bool = False,
) -> tuple[ShareAbility, ...]:
    """Give the ability of each GPU of `inventory`, in its order; see `share_ability`."""
    return tuple(
        share_ability(
            gpu,
            inventory.driver_version,
            burst_allowed=burst_allowed,
            expose_folder=expose_folder,
            time_slicing=time_slicing,
        )
        for gpu in inventory.gpus
    )


def share_ability(
    gpu: GpuFacts,
    driver_version: str | None,
    *,
    burst_allowed: bool,
    expose_folder: bool = False,
    time_slicing: bool = False,
) -> ShareAbility:
    """Give the strongest tier that can be held on a GPU; a tier of None where it cannot be shared.

    A fact that is not known counts as missing: the weaker tier is promised.

    Args:
        gpu: the board, with what was proved about it.
        driver_version: as the driver spells it.
        burst_allowed: shares may use more compute than they asked for.
        expose_folder: the node's setting; containers see all sockets whatever was proved.
        time_slicing: the node's setting; no GPU runs MPS.
    """
    if time_slicing:
        return _time_sliced(gpu, burst_allowed=burst_allowed)
    branch = driver_branch(driver_version)
    tier, reason = _tier(gpu, branch, driver_version, expose_folder=expose_folder)
    proved = gpu.mps_control_only is True and not expose_folder
    return ShareAbility(
        gpu=gpu.uuid,
        tier=tier,
        burst_allowed=burst_allowed,
        mps_multi_user=tier is not None and branch is not None and branch >= _MULTI_USER_BRANCH,
        expose=Expose.CONTROL if proved else Expose.FOLDER,
        reason=reason,
    )


def driver_branch(driver_version: str | None) -> int | None:
    """Give the 570 of "570.133.20"; None where the text does not start with a number."""
    match = re.match(r"\d+", driver_version or "")
    return int(match.group()) if match else None


def _time_sliced(gpu: GpuFacts, *, burst_allowed: bool) -> ShareAbility:
    tier: Tier | None = Tier.NONE
    reason = "this node shares GPUs by time-slicing (--sharing), which enforces no amounts"
    if gpu.mig_enabled:
        tier, reason = None, "cannot be shared: the board is in MIG mode"
    elif gpu.memory_total_bytes is None:
        tier, reason = None, "cannot be shared: the board does not tell its memory"
    return ShareAbility(gpu=gpu.uuid, tier=tier, burst_allowed=burst_allowed, reason=reason)


def _tier(
    gpu: GpuFacts, branch: int | None, driver_version: str | None, *, expose_folder: bool
) -> tuple[Tier | None, str]:
    unfit = _unfit(gpu)
    if unfit:
        return None, f"cannot be shared: {unfit}"
    if branch is None or branch < _PRIVILEGED_SOCKET_BRANCH:
        return Tier.COOPERATIVE, (
            f"driver {driver_version or 'of unknown version'} lets tenants change MPS limits; "
            f"{_PRIVILEGED_SOCKET_BRANCH} or later keeps them"
        )
    if expose_folder:
        return Tier.COOPERATIVE, "the whole pipe folder is exposed, as --mps-expose-folder asks"
    match gpu.mps_control_only:
        case True:
            return Tier.STANDARD, ""
        case False:
            return Tier.COOPERATIVE, (
                "MPS clients did not connect through the control socket alone, "
                "so the whole pipe folder is exposed"
            )
        case None:
            return Tier.COOPERATIVE, (
                "it is not proved that MPS clients connect through the control socket alone"
            )


def _unfit(gpu: GpuFacts) -> str:
    """Why MPS cannot run on a GPU; empty where it can."""
    if gpu.mig_enabled:
        return "the board is in MIG mode"
    if gpu.compute_capability is None:
        return "its compute capability is not known"
    if gpu.compute_capability < MPS_CAPABILITY:
        major, minor = gpu.compute_capability
        return f"MPS needs Volta or later (compute capability 7.0), this GPU has {major}.{minor}"
    return ""
