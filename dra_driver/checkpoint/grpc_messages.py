"""From messages of `gpuslice.checkpoint.v1alpha1` to values, and back."""

from __future__ import annotations

import re

from dra_api.checkpoint import checkpoint_v1alpha1_pb2 as api
from dra_driver.errors import GpusliceError
from dra_driver.model.checkpoint import (
    AfterCheckpoint,
    GpuOwner,
    HookAnswer,
    HookPhase,
    HookRequest,
    Kind,
    Operation,
    OperationState,
    Outcome,
    Target,
    Trigger,
)
from dra_driver.plan.manifest import manifest_text

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
MESSAGE_MAX = 1024
"""Characters of an outcome's text: it is kept with the operation, and told in Events."""
_NAME_MAX = 253
"""Characters of the longest names that Kubernetes has."""

_OWNERS = {
    api.GPU_OWNER_AUTO: GpuOwner.AUTO,
    api.GPU_OWNER_DRIVER: GpuOwner.DRIVER,
    api.GPU_OWNER_CRIU_PLUGIN: GpuOwner.CRIU_PLUGIN,
    api.GPU_OWNER_NONE: GpuOwner.NONE,
}
_OUTCOMES = {
    api.OUTCOME_UNKNOWN: Outcome.UNKNOWN,
    api.OUTCOME_SUCCEEDED: Outcome.SUCCEEDED,
    api.OUTCOME_FAILED: Outcome.FAILED,
}
_STATES = {
    state: api.State.Value(f"STATE_{re.sub('(?<!^)(?=[A-Z])', '_', state.value).upper()}")
    for state in OperationState
    if state is not OperationState.KILLING
} | {OperationState.KILLING: api.STATE_KILLING}


class InvalidMessage(GpusliceError):  # noqa: N818 - reads as the verdict that it is
    """A request is not as the protocol has it; the text names the field."""


def pre_checkpoint(request: api.PreCheckpointRequest) -> HookRequest:
    """Raises InvalidMessage."""
    return HookRequest(
        operation_id=operation_id(request.operation_id),
        phase=HookPhase.PRE_CHECKPOINT,
        trigger=Trigger.CONTROLLER,
        target=_target(request.target, needed=True),
        owner=_asked_owner(request.gpu_owner),
        after=AfterCheckpoint.STOP if request.stop_after else AfterCheckpoint.LEAVE_RUNNING,
        accept_host_only=request.accept_host_only,
        lease_s=float(request.lease_seconds) or None,
        dry_run=request.dry_run,
    )


def post_checkpoint(request: api.PostCheckpointRequest) -> HookRequest:
    """Raises InvalidMessage."""
    return HookRequest(
        operation_id=operation_id(request.operation_id),
        phase=HookPhase.POST_CHECKPOINT,
        trigger=Trigger.CONTROLLER,
        outcome=_outcome(request.outcome),
        outcome_text=_bounded(request.message, "message", MESSAGE_MAX),
    )


def pre_restore(request: api.PreRestoreRequest) -> HookRequest:
    """Raises InvalidMessage."""
    for uid in request.claim_uids:
        if not _UID.fullmatch(uid):
            raise InvalidMessage(f"claim_uids: {uid!r} is no UID")
    return HookRequest(
        operation_id=operation_id(request.operation_id),
        phase=HookPhase.PRE_RESTORE,
        trigger=Trigger.CONTROLLER,
        target=_target(request.target, needed=not request.claim_uids),
        claims=tuple(sorted(set(request.claim_uids))),
        checkpoint_id=operation_id(request.checkpoint_id, field="checkpoint_id"),
        owner=_asked_owner(request.gpu_owner),
        lease_s=float(request.lease_seconds) or None,
        dry_run=request.dry_run,
    )


def post_restore(request: api.PostRestoreRequest) -> HookRequest:
    """Raises InvalidMessage."""
    return HookRequest(
        operation_id=operation_id(request.operation_id),
        phase=HookPhase.POST_RESTORE,
        trigger=Trigger.CONTROLLER,
        target=_target(request.target, needed=False),
        outcome=_outcome(request.outcome),
        outcome_text=_bounded(request.message, "message", MESSAGE_MAX),
    )


def operation_id(value: str, *, field: str = "operation_id") -> str:
    """Raises InvalidMessage."""
    if not _ID.fullmatch(value):
        raise InvalidMessage(
            f"{field}: {value[:_NAME_MAX]!r} is no id: use letters, digits, '.', '_' and '-', at"
            " most 128"
        )
    return value


def hook_response(answer: HookAnswer, request: HookRequest) -> api.HookResponse:
    operation = answer.operation
    if operation is None:
        return api.HookResponse(operation_id=request.operation_id, warnings=answer.warnings)
    return api.HookResponse(
        operation_id=operation.id,
        state=_STATES[operation.state],
        warnings=answer.warnings,
        replayed=answer.replayed,
    )


def operation_message(operation: Operation, now_s: float) -> api.Operation:
    """Spell an operation; `now_s` is on the monotonic clock."""
    final = operation.state.final
    checkpoint = operation.kind is Kind.CHECKPOINT
    manifest = operation.manifest
    return api.Operation(
        operation_id=operation.id,
        kind=api.KIND_CHECKPOINT if checkpoint else api.KIND_RESTORE,
        state=_STATES[operation.state],
        target=_target_message(operation.target),
        claims=[
            api.Claim(namespace=each.namespace, name=each.name, uid=each.uid)
            for each in operation.claims
        ],
        gpu_owner=next(key for key, value in _OWNERS.items() if value is operation.owner),
        processes=[
            api.GpuProcess(
                pid=each.process.pid,
                started=each.process.started,
                found_state=each.found.value,
                state=each.state.value if each.state is not None else "",
                gpu_bytes=each.gpu_bytes,
            )
            for each in operation.processes
        ],
        started_seconds=operation.started_wall_s,
        changed_seconds=operation.changed_wall_s,
        remaining_seconds=0.0 if final else max(0.0, operation.until_s - now_s),
        message=operation.text,
        checkpoint_id=operation.checkpoint_id,
        manifest_json=manifest_text(manifest) if manifest is not None else "",
        device_map=[
            api.DeviceMapping(old_uuid=each.old, new_uuid=each.new) for each in operation.device_map
        ],
        warnings=operation.warnings,
        acknowledged=operation.acknowledged,
    )


def _target(message: api.Target, *, needed: bool) -> Target:
    named = message.container_id or (message.pod_namespace and message.pod_name)
    if needed and not named:
        raise InvalidMessage("target: give container_id, or pod_namespace and pod_name")
    if message.container_id and not re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", message.container_id):
        named = message.container_id[:_NAME_MAX]
        raise InvalidMessage(f"target.container_id: {named!r} is no container id")
    return Target(
        container_id=message.container_id,
        pod_uid=_bounded(message.pod_uid, "target.pod_uid", _NAME_MAX),
        pod_namespace=_bounded(message.pod_namespace, "target.pod_namespace", _NAME_MAX),
        pod_name=_bounded(message.pod_name, "target.pod_name", _NAME_MAX),
        container_name=_bounded(message.container_name, "target.container_name", _NAME_MAX),
    )


def _bounded(value: str, field: str, limit: int) -> str:
    if len(value) > limit:
        raise InvalidMessage(f"{field}: it has {len(value)} characters; give at most {limit}")
    return value


def _target_message(target: Target) -> api.Target:
    return api.Target(
        container_id=target.container_id,
        pod_namespace=target.pod_namespace,
        pod_name=target.pod_name,
        container_name=target.container_name,
        pod_uid=target.pod_uid,
        init_pid=target.init.pid if target.init is not None else 0,
    )


def _asked_owner(value: api.GpuOwner.ValueType) -> GpuOwner:
    owner = _OWNERS.get(value)
    if owner is None or owner is GpuOwner.NONE:
        raise InvalidMessage(
            "gpu_owner: give AUTO, DRIVER or CRIU_PLUGIN; a checkpoint without GPU state is"
            " accept_host_only"
        )
    return owner


def _outcome(value: api.Outcome.ValueType) -> Outcome:
    outcome = _OUTCOMES.get(value)
    if outcome is None:
        raise InvalidMessage(f"outcome: {value} is not known")
    return outcome
