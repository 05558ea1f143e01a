"""What people read of the watchdog's findings."""

from __future__ import annotations

from collections.abc import Iterable

from dra_driver.model.claim import ClaimRef
from dra_driver.model.owner import PodClaims
from dra_driver.plan.watchdog_values import Stranger, StrangerKind, Usage, Victim

_NAMED = 5


def exceeded_text(usage: Usage, pods: Iterable[PodClaims]) -> str:
    """Say who uses how much, and what comes of it.

    Args:
        usage: a claim above its limit.
        pods: of the node, as the kubelet tells them; empty where it does not answer.
    """
    at_least = "" if usage.complete else "at least "
    processes = "1 process" if usage.clients == 1 else f"{usage.clients} processes"
    if usage.victims:
        way_out = "its largest processes lose the GPU until it is within its memory"
    elif usage.enforced:
        way_out = (
            "MPS limits each process alone: run fewer processes, let each use less, or ask for "
            "more memory"
        )
    else:
        way_out = "time-slicing limits no memory: let its processes use less, or ask for more"
    return (
        f"claim {usage.claim} uses {at_least}{_mib(usage.used_bytes)} MiB of GPU {usage.gpu} and "
        f"holds {_mib(usage.limit_bytes)} MiB ({processes} in {_where(usage, pods)}): {way_out}"
    )


def terminated_text(usage: Usage, victim: Victim) -> str:
    return (
        f"process {victim.pid} on the node lost GPU {usage.gpu}: it used "
        f"{_mib(victim.memory_bytes)} MiB while claim {usage.claim} used "
        f"{_mib(usage.used_bytes)} MiB and holds {_mib(usage.limit_bytes)} MiB; onExceed of its "
        "config is Terminate. Its next CUDA call fails: restart it with less, or ask for more "
        "memory"
    )


def stranger_text(stranger: Stranger) -> str:
    """Say which process it is, why that is wrong, and what to do."""
    where = f"process {stranger.pid} on the node, of {_place(stranger)}, uses GPU {stranger.gpu}"
    match stranger.kind:
        case StrangerKind.INTRUDER:
            return (
                f"{where} although its mounts show no claim that holds anything of it: give its "
                "container a claim, or take its access to the GPU away"
            )
        case StrangerKind.BYPASS:
            return (
                f"{where} without MPS, so its share of compute and memory does not hold: let it "
                "keep CUDA_MPS_PIPE_DIRECTORY as it is set in its container"
            )
        case StrangerKind.HOST:
            return (
                f"{where}, which claims share: what it uses is missing for them; stop it, or take "
                "the GPU out of the driver's hands"
            )


def users(claim: ClaimRef, pods: Iterable[PodClaims]) -> tuple[str, ...]:
    """Containers that use a claim as "pod/container", sorted."""
    return tuple(
        sorted(
            f"{each.pod}/{each.container}"
            for each in pods
            if each.namespace == claim.namespace and claim.name in each.claims
        )
    )


def _where(usage: Usage, pods: Iterable[PodClaims]) -> str:
    names = users(usage.claim, pods) or tuple(f"pod {uid}" for uid in usage.pods)
    if not names:
        return "containers that are not known"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _place(stranger: Stranger) -> str:
    if stranger.pod_uid is not None:
        return f"pod {stranger.pod_uid}"
    if stranger.container_id is not None:
        return f"container {stranger.container_id}"
    return "no container"


def _mib(amount_bytes: int) -> int:
    """Rounded up, so that what is above a limit never reads as equal to it."""
    return -(-amount_bytes >> 20)
