"""What claims hold keeps its GPU's devices as they are.

The scheduler counts shares on a shareable device and nothing on an exclusive one. A GPU that became
the other kind under its claims would be given away a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dra_driver.model.device import GpuUuid, Inventory, Tier
from dra_driver.model.record import Record, Use
from dra_driver.model.share import Expose, GpuShare, ShareAbility, Sharing
from dra_driver.plan.sharing_news import shares_of
from dra_driver.plan.tiers import share_abilities


def held_whole(records: Iterable[Record]) -> frozenset[GpuUuid]:
    """Give the GPUs that claims hold as exclusive devices; records of all boots count.

    A claim for all of a shareable device holds a share of it, so that is none of these.
    """
    return frozenset(
        use.gpu
        for record in records
        for use in record.uses
        if use.use is Use.EXCLUSIVE and use.share_id is None
    )


def kept_shared(
    inventory: Inventory, abilities: tuple[ShareAbility, ...], records: tuple[Record, ...]
) -> tuple[ShareAbility, ...]:
    """Give GPUs that are held in parts a tier, where sharing can promise nothing now.

    It is the one that they were prepared with, as far as what their containers see tells it.
    """
    held = _held_in_parts(records)
    shares = shares_of(records)
    strongest = {each.gpu: each for each in share_abilities(inventory, burst_allowed=False)}
    return tuple(
        _kept(ability, tuple(shares.get(ability.gpu, ())), strongest[ability.gpu])
        if ability.tier is None and ability.gpu in held
        else ability
        for ability in abilities
    )


def _held_in_parts(records: Iterable[Record]) -> frozenset[GpuUuid]:
    """GPUs of whose shareable devices or slots something is held, be it all of it."""
    return frozenset(
        use.gpu
        for record in records
        for use in record.uses
        if use.use is Use.SLOT or use.share_id is not None
    )


def _kept(
    ability: ShareAbility, shares: tuple[GpuShare, ...], strongest: ShareAbility
) -> ShareAbility:
    if not shares:
        # All of the device is held by one claim, for which no share is enforced.
        tier, expose = strongest.tier or Tier.NONE, strongest.expose
    elif all(share.sharing is Sharing.TIME_SLICING for share in shares):
        tier, expose = Tier.NONE, Expose.CONTROL
    elif any(share.expose is Expose.FOLDER for share in shares):
        tier, expose = Tier.COOPERATIVE, Expose.FOLDER
    else:
        tier, expose = Tier.STANDARD, Expose.CONTROL
    return replace(ability, tier=tier, expose=expose, mps_multi_user=strongest.mps_multi_user)
