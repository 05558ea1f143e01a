"""Who uses the memory of shared GPUs, and who uses too much of it.

MPS holds each client process to its share's memory, so a claim with several processes could use a
multiple of it. Here the memory of a claim is the sum over its processes on one GPU, in whatever
containers and pods they run.

A process belongs to a claim by what its runtime mounted into its container: a share's folder, or
the claim's marker. One that hides its mounts belongs to the claim of its pod, if its pod has one
alone here. What is not told in these ways is never acted upon.
"""

from __future__ import annotations

from collections.abc import Iterable

from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Record
from dra_driver.model.share import GpuShare, OnExceed, Sharing
from dra_driver.model.steps import EnsureShare
from dra_driver.plan.watchdog_values import (
    Findings,
    Seen,
    Stranger,
    StrangerKind,
    Usage,
    Victim,
    Watched,
    WatchedShare,
)

_TOLERANCE_PERCENT = 2
_TOLERANCE_BYTES = 32 << 20
"""What a claim may be above its limit before it is said to be: MPS counts what it allocates, the
driver counts what it maps, in pages of 2 MiB and with its own tables for each process."""


def watched(records: Iterable[Record], boot_id: str) -> Watched:
    """What to watch; records of other boots hold nothing."""
    shares: dict[GpuUuid, list[WatchedShare]] = {}
    claims: dict[GpuUuid, set[str]] = {}
    known: set[str] = set()
    for record in records:
        if record.boot_id != boot_id:
            continue
        known.add(record.claim.uid)
        for gpu in record.gpus:
            claims.setdefault(gpu, set()).add(record.claim.uid)
        for step in record.steps:
            if isinstance(step, EnsureShare):
                known.add(step.share.id)
                pods = tuple(sorted(pod.uid for pod in record.pods))
                entry = WatchedShare(claim=record.claim, share=step.share, pods=pods)
                shares.setdefault(step.share.gpu, []).append(entry)
    return Watched(
        shares={
            gpu: tuple(sorted(entries, key=lambda entry: entry.share.id))
            for gpu, entries in sorted(shares.items())
        },
        claims={gpu: frozenset(uids) for gpu, uids in sorted(claims.items())},
        known=frozenset(known),
    )


def evaluate(
    gpu: GpuUuid,
    seen: Iterable[Seen],
    *,
    on: Watched,
    servers: frozenset[int] | None,
    ending: frozenset[tuple[int, int]] = frozenset(),
) -> Findings:
    """Judge the processes of one GPU.

    Args:
        gpu: which.
        seen: all its processes.
        on: what claims hold.
        servers: pids of its MPS servers; None: not known, so that no MPS process is called one that
            should not be there.
        ending: pid and start time of clients that were just told to end: what they still hold is
            about to be free and does not count.
    """
    shares = on.shares.get(gpu, ())
    processes = sorted(
        (
            each
            for each in seen
            if each.process.pid not in (servers or ()) and _identity(each) not in ending
        ),
        key=lambda each: each.process.pid,
    )
    strangers = (_stranger(gpu, each, on=on, servers=servers) for each in processes)
    return Findings(
        usages=_usages(shares, processes),
        strangers=tuple(each for each in strangers if each is not None),
    )


def _usages(shares: tuple[WatchedShare, ...], processes: list[Seen]) -> tuple[Usage, ...]:
    by_claim: dict[ClaimRef, list[WatchedShare]] = {}
    for entry in shares:
        by_claim.setdefault(entry.claim, []).append(entry)
    of = [(each, {entry.claim for entry in _shares_of(each, shares)}) for each in processes]
    usages = []
    for claim, entries in sorted(by_claim.items(), key=lambda item: item[0].uid):
        mine = [each for each, claims in of if claims == {claim}]
        unclear = any(claim in claims and len(claims) > 1 for _, claims in of)
        usages.append(_usage(claim, entries, mine, complete=not unclear))
    return tuple(usages)


def _shares_of(seen: Seen, shares: tuple[WatchedShare, ...]) -> tuple[WatchedShare, ...]:
    """Shares of the GPU that a process may belong to; of more than one claim: unclear.

    A share's folder is the best proof, as a claim's marker stands for all that the claim holds. The
    pod is asked only about who shows neither: root in a container changes its root, and the
    mounts are out of sight.
    """
    owner = seen.owner
    if owner is None:
        return ()
    if owner.shares or owner.claims:
        mounted = tuple(each for each in shares if each.share.id in owner.shares)
        return mounted or tuple(each for each in shares if each.claim.uid in owner.claims)
    of_pod = tuple(each for each in shares if owner.pod_uid in each.pods)
    return of_pod if len({each.claim for each in of_pod}) == 1 else ()


def _usage(
    claim: ClaimRef, entries: list[WatchedShare], processes: list[Seen], *, complete: bool
) -> Usage:
    told = [each.process.memory_bytes for each in processes]
    used_bytes = sum(each for each in told if each is not None)
    complete = complete and None not in told
    limit_bytes = sum(entry.share.memory_mib << 20 for entry in entries)
    over = used_bytes > limit_bytes + limit_bytes * _TOLERANCE_PERCENT // 100 + _TOLERANCE_BYTES
    policies = {entry.share.on_exceed for entry in entries}
    pods = {each.owner.pod_uid or "" for each in processes if each.owner is not None}
    return Usage(
        claim=claim,
        gpu=entries[0].share.gpu,
        limit_bytes=limit_bytes,
        used_bytes=used_bytes,
        clients=len(processes),
        complete=complete,
        over=over,
        under=complete and used_bytes <= limit_bytes,
        enforced=all(entry.share.sharing is Sharing.MPS for entry in entries),
        on_exceed=OnExceed.TERMINATE if OnExceed.TERMINATE in policies else OnExceed.WARN,
        pods=tuple(sorted(pods - {""})),
        victims=_victims(entries, processes, used_bytes - limit_bytes) if over else (),
    )


def _victims(
    entries: list[WatchedShare], processes: list[Seen], excess_bytes: int
) -> tuple[Victim, ...]:
    """The largest clients that together hold at least the excess, or all that may be ended."""
    candidates = []
    for each in processes:
        if each.owner is None or not each.process.mps or not each.process.memory_bytes:
            continue
        theirs = _shares_of(each, tuple(entries))
        if len(theirs) == 1 and _may_end(theirs[0].share):
            candidates.append(
                Victim(
                    pid=each.process.pid,
                    started=each.owner.started,
                    memory_bytes=each.process.memory_bytes,
                )
            )
    chosen: list[Victim] = []
    for victim in sorted(candidates, key=lambda each: (-each.memory_bytes, each.pid)):
        if sum(each.memory_bytes for each in chosen) >= excess_bytes:
            break
        chosen.append(victim)
    return tuple(chosen)


def _may_end(share: GpuShare) -> bool:
    return share.sharing is Sharing.MPS and share.on_exceed is OnExceed.TERMINATE


def _stranger(
    gpu: GpuUuid, seen: Seen, *, on: Watched, servers: frozenset[int] | None
) -> Stranger | None:
    owner = seen.owner
    if owner is None or (seen.process.mps and servers is None):
        return None
    theirs = _shares_of(seen, on.shares.get(gpu, ()))
    claim = None
    if theirs:
        if seen.process.mps or any(each.share.sharing is not Sharing.MPS for each in theirs):
            return None
        kind, claim = StrangerKind.BYPASS, theirs[0].claim
    elif owner.pod_uid is None and owner.container_id is None:
        kind = StrangerKind.HOST
    elif not on.claims.get(gpu, frozenset()).isdisjoint(owner.claims):
        return None
    elif not on.known.issuperset((*owner.shares, *owner.claims)):
        return None  # of a claim that is being let go, or of another driver
    else:
        kind = StrangerKind.INTRUDER
    return Stranger(
        kind=kind,
        gpu=gpu,
        pid=seen.process.pid,
        started=owner.started,
        pod_uid=owner.pod_uid,
        container_id=owner.container_id,
        claim=claim,
    )


def _identity(seen: Seen) -> tuple[int, int]:
    return seen.process.pid, seen.owner.started if seen.owner is not None else -1
