"""Whether a container can be restored with the claims that it has now."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.checkpoint import Code, GpuOwner, HookRequest, Kind, Operation, Outcome
from dra_driver.model.cuda import DeviceMapping
from dra_driver.model.device import Inventory
from dra_driver.model.manifest import Field, Manifest, Mismatch
from dra_driver.model.record import Record
from dra_driver.plan.compatibility import compatibility
from dra_driver.plan.manifest import build_manifest
from dra_driver.plan.operation_values import Problem

_UNNAMED = (
    "no checkpoint operation is named (restoreFrom in the claim's config), so whether it fits is"
    " seen when it runs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreFacts:
    """What there is to know of a container that is to be restored.

    Attributes:
        records: of its claims; at least one.
        checkpoint_id: the operation to restore from; empty: nobody named one.
        checkpoint: that operation; None: it is not known here.
    """

    request: HookRequest
    records: tuple[Record, ...]
    inventory: Inventory
    node: str
    checkpoint_id: str = ""
    checkpoint: Operation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restorable:
    owner: GpuOwner
    manifest: Manifest | None = None
    device_map: tuple[DeviceMapping, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestorable:
    problem: Problem
    mismatches: tuple[Mismatch, ...] = ()


def checkpoint_named(request: HookRequest, records: tuple[Record, ...]) -> str:
    """The checkpoint operation that a restore is from; empty: nobody names one."""
    named = (record.restore_from for record in records if record.restore_from)
    return request.checkpoint_id or next(named, "")


def decide_restore(facts: RestoreFacts) -> Restorable | NotRestorable:
    """Admit a restore, or say why it cannot go well."""
    if not facts.checkpoint_id:
        owner = facts.request.owner
        default = GpuOwner.CRIU_PLUGIN if owner is GpuOwner.AUTO else owner
        return Restorable(owner=default, warnings=(_UNNAMED,))
    recorded = _manifest(facts.checkpoint_id, facts.checkpoint)
    if isinstance(recorded, Problem):
        state = "unknown" if facts.checkpoint is None else str(facts.checkpoint.state)
        named = Mismatch(field=Field.CHECKPOINT, recorded=facts.checkpoint_id, actual=state)
        return NotRestorable(problem=recorded, mismatches=(named,))
    actual = build_manifest(facts.records, facts.inventory, node=facts.node)
    verdict = compatibility(recorded, actual)
    if verdict.mismatches:
        return NotRestorable(
            problem=_misfit(facts.checkpoint_id, verdict.mismatches),
            mismatches=verdict.mismatches,
        )
    return _owned(facts, recorded, verdict.device_map)


def check_restore_from(
    record: Record, checkpoint: Operation | None, *, inventory: Inventory, node: str
) -> None:
    """Check a claim that is prepared with `restoreFrom`; `checkpoint` is that operation.

    Raises:
        ClaimRejected: it cannot be restored with this claim.
    """
    named = record.restore_from or ""
    own = checkpoint is not None and any(
        each.namespace == record.claim.namespace for each in checkpoint.claims
    )
    # Nobody is told anything of what others have, not even that it is there.
    recorded = _manifest(named, checkpoint if own else None)
    if isinstance(recorded, Problem):
        raise ClaimRejected(Reason.NOT_SUPPORTED, f"claim {record.claim}: {recorded.text}")
    partial = checkpoint is not None and len(checkpoint.claims) > 1
    actual = build_manifest((record,), inventory, node=node)
    verdict = compatibility(recorded, actual, partial=partial)
    if verdict.mismatches:
        text = _misfit(named, verdict.mismatches).text
        raise ClaimRejected(Reason.NOT_SUPPORTED, f"claim {record.claim}: {text}")


def _manifest(named: str, checkpoint: Operation | None) -> Manifest | Problem:
    if checkpoint is None:
        text = (
            f"checkpoint operation {named} is not known on this node: a checkpoint is restored on"
            " the node and in the namespace where it was taken, and operations are kept for some"
            " days"
        )
        return Problem(code=Code.FAILED_PRECONDITION, text=text)
    taken = checkpoint.kind is Kind.CHECKPOINT and checkpoint.outcome is Outcome.SUCCEEDED
    if not taken or checkpoint.manifest is None:
        why = f"{checkpoint.state}: {checkpoint.text}" if checkpoint.text else checkpoint.state
        text = f"operation {named} is not known to have taken a checkpoint (it is {why})"
        return Problem(code=Code.FAILED_PRECONDITION, text=text)
    return checkpoint.manifest


def _misfit(named: str, mismatches: tuple[Mismatch, ...]) -> Problem:
    told = "; ".join(map(str, mismatches))
    return Problem(code=Code.FAILED_PRECONDITION, text=f"checkpoint {named} does not fit: {told}")


def _owned(
    facts: RestoreFacts, recorded: Manifest, device_map: tuple[DeviceMapping, ...]
) -> Restorable | NotRestorable:
    """Whoever took the processes off their GPUs brings them back."""
    owner = GpuOwner.DRIVER if recorded.driver_owned else GpuOwner.CRIU_PLUGIN
    if recorded.host_only or (not recorded.driver_owned and not recorded.gpu_bytes):
        owner = GpuOwner.NONE
    asked = facts.request.owner
    if GpuOwner.DRIVER in (asked, owner) and asked not in (owner, GpuOwner.AUTO):
        text = (
            f"checkpoint {facts.checkpoint_id} was taken with GPU owner {owner}, not {asked}: leave"
            " the owner out"
        )
        return NotRestorable(problem=Problem(code=Code.FAILED_PRECONDITION, text=text))
    return Restorable(owner=owner, manifest=recorded, device_map=device_map)
