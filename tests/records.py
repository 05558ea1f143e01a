"""Records, and a small planner for tests of the state machine.

The planner reads no inventory: what a claim gets stands in the results of `tests.builders`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.errors import ClaimRejected, NotReady, Reason
from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuFacts
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import GpuUse, PreparedDevice, Record, RecordState, Use
from dra_driver.model.share import GpuShare, Sharing, TimeSlice
from dra_driver.model.steps import EnsureShare, SetTimeSlice, Step
from dra_driver.plan.cdi import ClaimSpec, SpecEntry, claim_spec
from dra_driver.plan.naming import gpu_device
from tests.builders import BOOT, DRIVER, NODE, claim_json, gpu, ref, share_result

WHOLE, SHARE, SLOW = "whole", "share", "time-slice"


def claim(number: int = 1, *, kind: str = SHARE, on: int = 0) -> dict[str, Any]:
    """A claim for a share of a GPU, all of it, or all of it with a time slice of its own."""
    result = share_result(gpu_device(gpu(on).uuid), request=kind, share=number)
    if kind != SHARE:
        del result["shareID"], result["consumedCapacity"]
    return claim_json(number, results=[result])


def record(
    number: int = 1,
    *,
    kind: str = SHARE,
    on: int = 0,
    state: RecordState = RecordState.PREPARED,
    boot_id: str = BOOT,
    setting: str = "MPS",
) -> Record:
    """What `plan` makes of `claim` with the same arguments."""
    reference, facts, name = ref(number), gpu(on), gpu_device(gpu(on).uuid)
    share_id = f"{number:08x}-0000-4000-a000-{number:012x}" if kind == SHARE else None
    spec = _spec(kind, facts, reference, share_id)
    shared = kind == SHARE
    use = GpuUse(
        gpu=facts.uuid,
        use=Use.SHARED if shared else Use.EXCLUSIVE,
        device=name,
        share_id=share_id,
        compute_percent=25 if shared else 100,
        memory_mib=6144,
        setting=setting if shared else "",
    )
    device = PreparedDevice(
        requests=(kind,), pool=NODE, device=name, cdi_ids=spec.cdi_ids[0], share_id=share_id
    )
    return Record(
        claim=reference,
        state=state,
        boot_id=boot_id,
        uses=(use,),
        steps=(*_effects(kind, facts, reference), spec.step),
        devices=(device,),
    )


def plan(body: Mapping[str, Any], wanted: ClaimRef, *, setting: str = "MPS") -> PreparePlan:
    """Plan a claim that `claim` made, in the boot of `tests.builders`."""
    if body["metadata"]["uid"] != wanted.uid:
        raise ClaimRejected(Reason.CLAIM_REPLACED, f"claim {wanted} was replaced")
    results = body["status"]["allocation"]["devices"]["results"]
    if not results:
        raise NotReady(Reason.NOT_ALLOCATED, f"claim {wanted} is not allocated")
    number = int(wanted.uid.partition("-")[0], 16)
    names = [gpu_device(gpu(on).uuid) for on in range(8)]
    on = names.index(results[0]["device"])
    planned = record(
        number, kind=results[0]["request"], on=on, state=RecordState.RESERVED, setting=setting
    )
    return PreparePlan(record=planned)


def _spec(kind: str, facts: GpuFacts, reference: ClaimRef, share_id: str | None) -> ClaimSpec:
    entry = SpecEntry(
        request=kind,
        device=gpu_device(facts.uuid),
        share_id=share_id,
        gpu=facts,
        compute_percent=25,
        memory_mib=6144,
    )
    node = Edits(device_nodes=(DeviceNode(path=f"/dev/nvidia{facts.minor}"),))
    return claim_spec(
        driver=DRIVER,
        claim_uid=reference.uid,
        entries=(entry,),
        driver_edits=DriverEdits(per_gpu={facts.uuid: node}),
    )


def _effects(kind: str, facts: GpuFacts, reference: ClaimRef) -> tuple[Step, ...]:
    if kind == SHARE:
        share = GpuShare(
            id=f"{reference.uid}-share",
            gpu=facts.uuid,
            sharing=Sharing.MPS,
            compute_percent=25,
            memory_mib=6144,
        )
        return (EnsureShare(share=share),)
    if kind == SLOW:
        return (SetTimeSlice(gpu=facts.uuid, interval=TimeSlice.LONG),)
    return ()
