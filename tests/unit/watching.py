"""Builders of what the watchdog sees."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dra_driver.model.claim import PodRef
from dra_driver.model.mps import GpuProcess
from dra_driver.model.owner import ProcessOwner
from dra_driver.model.record import GpuUse, Record, RecordState, Use
from dra_driver.model.share import GpuShare, Sharing
from dra_driver.model.steps import EnsureShare
from dra_driver.plan.watchdog_values import Seen
from tests.builders import BOOT, claim_uid, ref, uuid

GIB, MIB = 1 << 30, 1 << 20
LIMIT_MIB = 6144
LIMIT = LIMIT_MIB * MIB
OVER = LIMIT + LIMIT // 50 + 32 * MIB + 1
"""The least amount that is above a limit of LIMIT."""


def share_id(claim: int, index: int = 0) -> str:
    return f"{claim_uid(claim)}-{index}"


def record(
    number: int = 1,
    *,
    on: tuple[int, ...] = (0,),
    boot_id: str = BOOT,
    pods: tuple[int, ...] = (),
    **share: Any,
) -> Record:
    """A claim with a share of each GPU of `on`; `share` replaces fields of all of them."""
    shares = [
        GpuShare(
            id=share_id(number, index),
            gpu=uuid(gpu),
            sharing=Sharing.MPS,
            compute_percent=25,
            memory_mib=LIMIT_MIB,
        )
        for index, gpu in enumerate(on)
    ]
    steps = tuple(EnsureShare(share=replace(each, **share)) for each in shares)
    refs = tuple(PodRef(name=f"pod-{each}", uid=pod_uid(each)) for each in pods)
    return replace(_record(number, on, boot_id, steps), pods=refs)


def monitor(number: int, *, on: int = 0) -> Record:
    """A claim that holds a GPU without a share of it."""
    return _record(number, (on,), BOOT, ())


def pod_uid(number: int) -> str:
    return claim_uid(0x900 + number)


def process(pid: int, memory_bytes: int | None = GIB, *, mps: bool = True) -> GpuProcess:
    return GpuProcess(pid=pid, memory_bytes=memory_bytes, mps=mps)


def owner(
    pid: int,
    *shares: str,
    claims: tuple[int, ...] = (),
    pod: int | None = 1,
    started: int = 500,
    container: str | None = "",
) -> ProcessOwner:
    """A process of a container; `pod` None: outside pods, and outside containers unless named."""
    where = container or (f"{pod:064x}" if pod is not None else None)
    return ProcessOwner(
        pid=pid,
        started=started,
        pod_uid=pod_uid(pod) if pod is not None else None,
        container_id=where,
        shares=tuple(sorted(shares)),
        claims=tuple(claim_uid(each) for each in claims),
    )


def seen(
    pid: int, memory_bytes: int | None = GIB, *, claim: int = 1, mps: bool = True, pod: int = 1
) -> Seen:
    """A process of a container with the first share of a claim."""
    return Seen(
        process=process(pid, memory_bytes, mps=mps), owner=owner(pid, share_id(claim), pod=pod)
    )


def _record(
    number: int, on: tuple[int, ...], boot_id: str, steps: tuple[EnsureShare, ...]
) -> Record:
    kind = Use.SHARED if steps else Use.MONITOR
    return Record(
        claim=ref(number),
        state=RecordState.PREPARED,
        boot_id=boot_id,
        uses=tuple(GpuUse(gpu=uuid(gpu), use=kind, device=f"gpu-{gpu}") for gpu in on),
        steps=steps,
        devices=(),
    )
