"""What happened to shared GPUs between two looks at them."""

from __future__ import annotations

from collections.abc import Iterable

from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.record import Record
from dra_driver.model.share import GpuShare
from dra_driver.model.steps import EnsureShare

States = tuple[GpuSharing, ...]


def losses(before: States, after: States) -> dict[GpuUuid, int]:
    """How often the daemon of each GPU was lost; GPUs without a loss are left out.

    A supervisor that starts anew counts restarts anew: then another process as daemon tells. Of a
    GPU that was not known before, nothing is told.
    """
    known = {each.gpu: each for each in before}
    counts = {state.gpu: _lost(known.get(state.gpu), state) for state in after}
    return {gpu: count for gpu, count in sorted(counts.items()) if count}


def faults(states: States) -> dict[GpuUuid, GpuSharing]:
    """Give the GPUs whose shares cannot be enforced now."""
    return {state.gpu: state for state in states if state.shares and state.phase is MpsPhase.FAULT}


def abilities_differ(before: States, after: States) -> bool:
    """Whether what sharing can promise may have changed."""
    return _promises(before) != _promises(after)


def shares_of(records: Iterable[Record]) -> dict[GpuUuid, dict[GpuShare, ClaimRef]]:
    """Shares by GPU, each with its claim; records of all boots count."""
    found: dict[GpuUuid, dict[GpuShare, ClaimRef]] = {}
    for record in records:
        for step in record.steps:
            if isinstance(step, EnsureShare):
                found.setdefault(step.share.gpu, {})[step.share] = record.claim
    return found


def _lost(known: GpuSharing | None, state: GpuSharing) -> int:
    if known is None or not known.shares:
        return 0
    if state.restarts > known.restarts:
        return state.restarts - known.restarts
    daemons = {known.daemon_pid, state.daemon_pid}
    # A GPU that was given back in between has another daemon for other tenants.
    stayed = not set(known.shares).isdisjoint(state.shares)
    return int(stayed and None not in daemons and len(daemons) > 1)


def _promises(states: States) -> frozenset[tuple[object, ...]]:
    return frozenset(
        (each.gpu, each.proof, each.multi_user, each.refusal, each.simulated) for each in states
    )
