"""What preparing and unpreparing a claim does, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.cdi import DriverEdits, Edits
from dra_driver.model.checkpoint import Operation
from dra_driver.model.claim import AllocationResult, Claim
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import PreparedDevice, Record, RecordState
from dra_driver.model.share import CheckpointPolicy, ShareAbility
from dra_driver.model.steps import MarkClaim, SetTimeSlice, Step, WriteCdiSpec
from dra_driver.plan.amounts import usable_memory_mib
from dra_driver.plan.cdi import claim_spec
from dra_driver.plan.claim_marks import claim_edits
from dra_driver.plan.decisions import Decision, Terms, decide
from dra_driver.plan.restore import check_restore_from
from dra_driver.plan.together import check_together

_LEAST_FIRST = tuple(CheckpointPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """Settings of the node that decide about claims.

    Attributes:
        boot_id: of this boot of the node.
        allow_burst: shares may use free compute where their qos says so.
        mps_single_uid: UID that all pods on shared GPUs run as, where an MPS server cannot serve
            several; None: nothing was promised.
        run_dir: the run folder on the host.
        mps_folders: the supervisor makes folders of sockets below `run_dir`, so that containers
            under MPS can have them mounted.
        mark_claims: containers get the mark of their claim.
        checkpoints: the checkpoint hook is served.
        hook: path of the program gpuslice-hook on the host, to be called when a container is
            restored; None: it is not. Only together with `mark_claims`.
    """

    driver: str
    node: str
    boot_id: str
    allow_burst: bool = True
    mps_single_uid: int | None = None
    run_dir: str = "/run/gpuslice"
    mps_folders: bool = False
    mark_claims: bool = False
    checkpoints: bool = False
    hook: str | None = None


def plan_prepare(
    claim: Claim,
    *,
    options: PrepareOptions,
    inventory: Inventory,
    abilities: tuple[ShareAbility, ...],
    driver_edits: DriverEdits,
    operations: Mapping[str, Operation] | None = None,
) -> PreparePlan:
    """Decide how to prepare a claim; the same input gives an equal plan.

    Args:
        claim: allocated on this node; without results of this driver nothing is to be done.
        options: of the node.
        inventory: of the node, as read now.
        abilities: of its GPUs, in any order; a GPU without one cannot be shared.
        driver_edits: of `inventory`.
        operations: of the checkpoint hook, by id; asked where a config says `restoreFrom`.

    Raises:
        ClaimRejected: the claim has to change.
        NotReady: the node is not ready for it.
    """
    decisions = decide(claim, _terms(options, inventory, abilities))
    check_together(claim, decisions, driver=options.driver)
    record = _record(claim, decisions, options=options, driver_edits=driver_edits)
    if record.restore_from is not None:
        checkpoint = (operations or {}).get(record.restore_from)
        check_restore_from(record, checkpoint, inventory=inventory, node=options.node)
    return PreparePlan(
        record=record,
        warnings=tuple(text for each in decisions for text in each.warnings),
        notes=tuple(each.note for each in decisions),
        usable_mib=_usable(decisions),
    )


def plan_unprepare(record: Record, others: Mapping[str, Record]) -> tuple[Step, ...]:
    """Give the steps to undo, in the order of undoing: the CDI spec first, the rest backwards.

    `others` are records by claim UID; what one of them still needs is left out, and `record` itself
    among them is not looked at.
    """
    needed = {
        step.gpu
        for uid, other in others.items()
        if uid != record.claim.uid
        for step in other.steps
        if isinstance(step, SetTimeSlice)
    }
    backwards = tuple(reversed(record.steps))
    specs = tuple(step for step in backwards if isinstance(step, WriteCdiSpec))
    rest = tuple(step for step in backwards if not isinstance(step, WriteCdiSpec))
    return (
        *specs,
        *(step for step in rest if not (isinstance(step, SetTimeSlice) and step.gpu in needed)),
    )


def _terms(
    options: PrepareOptions, inventory: Inventory, abilities: tuple[ShareAbility, ...]
) -> Terms:
    return Terms(
        inventory=inventory,
        abilities=abilities,
        allow_burst=options.allow_burst,
        mps_single_uid=options.mps_single_uid,
        mps_run_dir=options.run_dir if options.mps_folders else None,
        checkpoints=options.checkpoints,
    )


def _record(
    claim: Claim,
    decisions: tuple[Decision, ...],
    *,
    options: PrepareOptions,
    driver_edits: DriverEdits,
) -> Record:
    # One GPU's time slice may be asked for by several devices.
    wanted = dict.fromkeys(step for each in decisions for step in each.steps)
    steps: tuple[Step, ...] = tuple(wanted)
    devices: tuple[PreparedDevice, ...] = ()
    if decisions:
        spec = claim_spec(
            driver=options.driver,
            claim_uid=claim.ref.uid,
            entries=tuple(each.entry for each in decisions),
            driver_edits=driver_edits,
            claim_edits=_claim_edits(claim, options),
        )
        marks = (MarkClaim(claim_uid=claim.ref.uid),) if options.mark_claims else ()
        # Last, so that no container can start before what its spec promises is there.
        steps = (*steps, *marks, spec.step)
        devices = tuple(map(_device, claim.results, spec.cdi_ids))
    return Record(
        claim=claim.ref,
        state=RecordState.RESERVED,
        boot_id=options.boot_id,
        uses=tuple(each.use for each in decisions),
        steps=steps,
        devices=devices,
        pods=claim.consumers,
        checkpoint=_policy(decisions),
        restore_from=_restored(claim, decisions),
    )


def _claim_edits(claim: Claim, options: PrepareOptions) -> Edits:
    if not options.mark_claims:
        return Edits()
    return claim_edits(claim.ref.uid, run_dir=options.run_dir, hook=options.hook)


def _policy(decisions: tuple[Decision, ...]) -> CheckpointPolicy:
    """Of all devices the one that allows least; a monitor holds nothing to lose."""
    said = {each.checkpoint for each in decisions}
    return next((each for each in _LEAST_FIRST if each in said), CheckpointPolicy.NONE)


def _restored(claim: Claim, decisions: tuple[Decision, ...]) -> str | None:
    named = dict.fromkeys(each.restore_from for each in decisions if each.restore_from)
    if len(named) > 1:
        raise ClaimRejected(
            Reason.INVALID_CONFIG,
            f"claim {claim.ref}: its configs name several operations in restoreFrom, "
            f"{' and '.join(named)}, but a container is restored from one",
        )
    return next(iter(named), None)


def _device(result: AllocationResult, cdi_ids: tuple[str, ...]) -> PreparedDevice:
    return PreparedDevice(
        requests=(result.main_request,),
        pool=result.pool,
        device=result.device,
        cdi_ids=cdi_ids,
        share_id=result.share_id,
    )


def _usable(decisions: tuple[Decision, ...]) -> dict[GpuUuid, int]:
    usable = {each.use.gpu: usable_memory_mib(each.entry.gpu) for each in decisions}
    return {gpu: mib for gpu, mib in sorted(usable.items()) if mib is not None}
