"""What one allocated device becomes: what it holds, how that is made real, what its container sees.

One arm per kind of device. How the devices of a claim go together is judged in `plan.together`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.errors import ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.cdi import NO_EDITS, Edits
from dra_driver.model.claim import AllocationResult, Claim, ClaimRef
from dra_driver.model.config import GpuConfig, SliceConfig
from dra_driver.model.device import GpuFacts, Inventory
from dra_driver.model.record import GpuUse, Use
from dra_driver.model.share import CheckpointPolicy, GpuShare, ShareAbility
from dra_driver.model.steps import EnsureShare, SetTimeSlice, Step
from dra_driver.plan.amounts import COMPUTE_WHOLE_PERCENT, usable_memory_mib
from dra_driver.plan.cdi import SpecEntry
from dra_driver.plan.checkpoint_fields import check_fields
from dra_driver.plan.configs import Applied, DeviceKind, applied_configs
from dra_driver.plan.demand import ShareDemand
from dra_driver.plan.health import LOST, NOT_LOADED
from dra_driver.plan.mps_edits import mps_edits
from dra_driver.plan.sharing import decide_share, is_whole
from dra_driver.plan.targets import GpuTarget, MonitorTarget, PadTarget, SlotTarget, resolve

_NO_SLICE_CONFIG = SliceConfig()
_NO_GPU_CONFIG = GpuConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of one allocation result.

    Attributes:
        share: what sharing enforces; None for a whole GPU and a monitor.
        checkpoint, restore_from: as its config says; None where it has none.
    """

    result: AllocationResult
    use: GpuUse
    entry: SpecEntry
    note: str
    share: GpuShare | None = None
    steps: tuple[Step, ...] = ()
    warnings: tuple[str, ...] = ()
    checkpoint: CheckpointPolicy | None = None
    restore_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the node offers to claims; see `plan.prepare.PrepareOptions` for the settings.

    Attributes:
        mps_run_dir: the run folder on the host; None where it holds no folders of sockets.
        checkpoints: the node takes checkpoints.
    """

    inventory: Inventory
    abilities: tuple[ShareAbility, ...]
    allow_burst: bool
    mps_single_uid: int | None
    mps_run_dir: str | None = None
    checkpoints: bool = False


def decide(claim: Claim, terms: Terms) -> tuple[Decision, ...]:
    """Decide about each of the claim's results, in their order.

    Raises:
        ClaimRejected: a device, an amount or a config cannot be had.
        NotReady: a GPU cannot be read or shared now.
    """
    targets = _targets(claim, terms.inventory)
    applied = applied_configs(claim, tuple(map(_kind, claim.results, targets)))
    return tuple(
        _decision(claim.ref, terms, index=index, result=result, target=target, applied=config)
        for index, (result, target, config) in enumerate(
            zip(claim.results, targets, applied, strict=True)
        )
    )


def shared_gpus(claim: Claim, inventory: Inventory) -> tuple[GpuFacts, ...]:
    """The GPUs of which the claim takes a part: deciding depends on what sharing them promises.

    Raises:
        ClaimRejected, NotReady: a device of the claim cannot be used.
    """
    found = {
        target.gpu.uuid: target.gpu
        for result, target in zip(claim.results, _targets(claim, inventory), strict=True)
        if not isinstance(target, MonitorTarget)
        and _kind(result, target) in (DeviceKind.SHARE, DeviceKind.SLOT)
    }
    return tuple(found.values())


_Usable = GpuTarget | SlotTarget | MonitorTarget


def _targets(claim: Claim, inventory: Inventory) -> tuple[_Usable, ...]:
    return tuple(_target(claim.ref, result, inventory) for result in claim.results)


def _target(ref: ClaimRef, result: AllocationResult, inventory: Inventory) -> _Usable:
    where = f"claim {ref}, request {result.request}"
    try:
        target = resolve(result.device, inventory)
    except ClaimError as e:
        raise type(e)(e.reason, f"{where}: {e}") from e
    if isinstance(target, GpuTarget | SlotTarget):
        _check_reachable(where, target.gpu, inventory)
    match target:
        case PadTarget():
            raise ClaimRejected(
                Reason.NOT_SUPPORTED,
                f"{where}: device {result.device} is a place holder that nobody can use: use one "
                'of the shipped DeviceClasses, or select `type == "gpu"`',
            )
        case MonitorTarget() if not result.admin_access:
            raise ClaimRejected(
                Reason.NOT_SUPPORTED,
                f"{where}: device {result.device} is a monitor, which needs admin access: set "
                "adminAccess: true in the request, in a namespace labelled "
                'resource.kubernetes.io/admin-access: "true"',
            )
        case _:
            return target


def _check_reachable(where: str, gpu: GpuFacts, inventory: Inventory) -> None:
    health = inventory.health_of(gpu.uuid)
    if health is not None and health.cause in (LOST, NOT_LOADED):
        raise NotReady(
            Reason.DEVICE_LOST,
            f"{where}: GPU {gpu.uuid} cannot be reached now ({health.message or health.cause}): it "
            "is tried again; repair or reset the GPU, or delete the pod and its claim, so that "
            "they are scheduled elsewhere",
        )


def _kind(result: AllocationResult, target: _Usable) -> DeviceKind:
    match target:
        case MonitorTarget():
            return DeviceKind.MONITOR
        case _ if result.admin_access:
            return DeviceKind.ADMIN
        case SlotTarget():
            return DeviceKind.SLOT
        case GpuTarget():
            return DeviceKind.WHOLE if is_whole(result) else DeviceKind.SHARE


def _decision(
    ref: ClaimRef,
    terms: Terms,
    *,
    index: int,
    result: AllocationResult,
    target: _Usable,
    applied: Applied | None,
) -> Decision:
    match target:
        case MonitorTarget():
            return _monitor(result, target.gpu)
        case _ if result.admin_access:
            return _monitor(result, target.gpu)
        case GpuTarget() if is_whole(result):
            return _whole(ref, terms, result=result, gpu=target.gpu, applied=applied)
        case _:
            return _shared(ref, terms, index=index, result=result, target=target, applied=applied)


def _shared(
    ref: ClaimRef,
    terms: Terms,
    *,
    index: int,
    result: AllocationResult,
    target: GpuTarget | SlotTarget,
    applied: Applied | None,
) -> Decision:
    value = applied.value if applied is not None else None
    config = value if isinstance(value, SliceConfig) else _NO_SLICE_CONFIG
    decided = decide_share(
        ShareDemand(
            claim=ref,
            # Counted, not named by the allocation's share: slots have none of their own.
            share=f"{ref.uid}-{index}",
            result=result,
            target=target,
            config=config,
            config_path=applied.path if applied is not None else "",
            ability=_ability(target.gpu, terms),
            allow_burst=terms.allow_burst,
            mps_single_uid=terms.mps_single_uid,
        )
    )
    share, interval = decided.share, decided.time_slice
    extra = mps_edits(share, run_dir=terms.mps_run_dir)
    sliced = (SetTimeSlice(gpu=share.gpu, interval=interval),) if interval is not None else ()
    return Decision(
        result=result,
        use=decided.use,
        entry=_entry(
            result, target.gpu, compute=share.compute_percent, memory=share.memory_mib, extra=extra
        ),
        checkpoint=config.checkpoint,
        note=decided.note,
        share=share,
        steps=(EnsureShare(share=share), *sliced),
        warnings=decided.warnings,
    )


def _ability(gpu: GpuFacts, terms: Terms) -> ShareAbility:
    known = next((each for each in terms.abilities if each.gpu == gpu.uuid), None)
    return known or ShareAbility(gpu=gpu.uuid, tier=None, reason="nothing is known about it yet")


def _whole(
    ref: ClaimRef,
    terms: Terms,
    *,
    result: AllocationResult,
    gpu: GpuFacts,
    applied: Applied | None,
) -> Decision:
    value = applied.value if applied is not None else None
    config = value if isinstance(value, GpuConfig) else _NO_GPU_CONFIG
    path = applied.path if applied is not None else ""
    check_fields(f"claim {ref}: {path}", config, terms.inventory, enabled=terms.checkpoints)
    memory = usable_memory_mib(gpu) or 0
    interval = config.time_slice
    told = f", time slice {interval} by {path}" if interval is not None else ""
    return Decision(
        result=result,
        use=GpuUse(
            gpu=gpu.uuid,
            use=Use.EXCLUSIVE,
            device=result.device,
            share_id=result.share_id,
            compute_percent=COMPUTE_WHOLE_PERCENT,
            memory_mib=memory,
            setting=f"TimeSlice={interval}" if interval is not None else "",
        ),
        entry=_entry(result, gpu, compute=COMPUTE_WHOLE_PERCENT, memory=memory),
        note=f"request {result.request}: GPU {gpu.uuid} as a whole, {memory} MiB{told}",
        # Nothing is set that nobody asked for: a board may not even support it.
        steps=(SetTimeSlice(gpu=gpu.uuid, interval=interval),) if interval is not None else (),
        checkpoint=config.checkpoint,
        restore_from=config.restore_from,
    )


def _monitor(result: AllocationResult, gpu: GpuFacts) -> Decision:
    return Decision(
        result=result,
        use=GpuUse(
            gpu=gpu.uuid,
            use=Use.MONITOR,
            device=result.device,
            share_id=result.share_id,
            compute_percent=0,
        ),
        entry=_entry(result, gpu, compute=0, memory=0, monitor=True),
        note=f"request {result.request}: a view of GPU {gpu.uuid} by admin access; holds nothing",
    )


def _entry(
    result: AllocationResult,
    gpu: GpuFacts,
    *,
    compute: int,
    memory: int,
    extra: Edits = NO_EDITS,
    monitor: bool = False,
) -> SpecEntry:
    return SpecEntry(
        request=result.request,
        device=result.device,
        share_id=result.share_id,
        gpu=gpu,
        compute_percent=compute,
        memory_mib=memory,
        extra=extra,
        monitor=monitor,
    )
