"""The stored form of an operation of the hook: versioned JSON.

Within a version fields may be added, and readers ignore those they do not know. A version or a word
that is not known here was written by a newer release: such an operation is left alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from dra_driver.model.checkpoint import (
    AfterCheckpoint,
    Code,
    GpuOwner,
    HeldProcess,
    HookPhase,
    Kind,
    Operation,
    OperationState,
    Outcome,
    StoredAnswer,
    Target,
    Trigger,
)
from dra_driver.model.claim import ClaimRef
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.device import GpuUuid
from dra_driver.plan.manifest import manifest_json, read_manifest

VERSION = "gpuslice.io/operation/v1"
_ANY_VERSION = VERSION.removesuffix("1")

E = TypeVar("E", bound=StrEnum)


class NewerOperation(ValueError):  # noqa: N818 - reads as the verdict that it is
    """A newer release wrote it; the text names what is not known here."""


def encode_operation(operation: Operation) -> str:
    """Spell an operation; equal ones are equal text."""
    manifest = operation.manifest
    body: dict[str, Any] = {
        "version": VERSION,
        "id": operation.id,
        "kind": operation.kind.value,
        "state": operation.state.value,
        "trigger": operation.trigger.value,
        "target": _target_json(operation.target),
        "owner": operation.owner.value,
        "bootId": operation.boot_id,
        "until": operation.until_s,
        "started": operation.started_wall_s,
        "changed": operation.changed_wall_s,
        "claims": [
            {"namespace": each.namespace, "name": each.name, "uid": each.uid}
            for each in operation.claims
        ],
        "after": operation.after.value,
        "processes": [_held_json(each) for each in operation.processes],
        "runner": _process_json(operation.runner),
        "checkpointId": operation.checkpoint_id,
        "manifest": manifest_json(manifest) if manifest is not None else None,
        "deviceMap": [{"old": each.old, "new": each.new} for each in operation.device_map],
        "outcome": operation.outcome.value,
        "ending": operation.ending.value,
        "code": operation.code.value,
        "text": operation.text,
        "warnings": list(operation.warnings),
        "answers": [_answer_json(each) for each in operation.answers],
        "acknowledged": operation.acknowledged,
    }
    return json.dumps(body, sort_keys=True, separators=(",", ":")) + "\n"


def decode_operation(content: bytes) -> Operation:
    """Read what `encode_operation` of this or an older release wrote.

    Raises:
        NewerOperation: a newer release wrote it.
        ValueError: it is none; the text says in which respect.
    """
    try:
        body = json.loads(content)
        version = str(body["version"])
        if version == VERSION:
            return _operation(body)
        kind = NewerOperation if version.startswith(_ANY_VERSION) else ValueError
        raise kind(f"version {version!r} is not known")
    except KeyError as error:
        raise ValueError(f"field {error} is missing") from error
    except (TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _target_json(target: Target) -> dict[str, Any]:
    return {
        "containerId": target.container_id,
        "podUid": target.pod_uid,
        "podNamespace": target.pod_namespace,
        "podName": target.pod_name,
        "containerName": target.container_name,
        "init": _process_json(target.init),
    }


def _process_json(process: ProcessRef | None) -> dict[str, Any] | None:
    return None if process is None else {"pid": process.pid, "started": process.started}


def _held_json(held: HeldProcess) -> dict[str, Any]:
    return {
        "process": _process_json(held.process),
        "found": held.found.value,
        "state": held.state.value if held.state is not None else None,
        "gpuBytes": held.gpu_bytes,
    }


def _answer_json(answer: StoredAnswer) -> dict[str, Any]:
    return {
        "phase": answer.phase.value,
        "digest": answer.digest,
        "code": answer.code.value,
        "text": answer.text,
    }


def _operation(body: Mapping[str, Any]) -> Operation:
    manifest = body.get("manifest")
    return Operation(
        id=str(body["id"]),
        kind=_word(Kind, body["kind"]),
        state=_word(OperationState, body["state"]),
        trigger=_word(Trigger, body["trigger"]),
        target=_target(body["target"]),
        owner=_word(GpuOwner, body["owner"]),
        boot_id=str(body["bootId"]),
        until_s=float(body["until"]),
        started_wall_s=float(body["started"]),
        changed_wall_s=float(body["changed"]),
        claims=tuple(
            ClaimRef(str(each["namespace"]), str(each["name"]), str(each["uid"]))
            for each in body["claims"]
        ),
        after=_word(AfterCheckpoint, body["after"]),
        processes=tuple(map(_held, body["processes"])),
        runner=_process(body.get("runner")),
        checkpoint_id=str(body.get("checkpointId", "")),
        manifest=read_manifest(manifest) if manifest is not None else None,
        device_map=tuple(
            DeviceMapping(old=GpuUuid(str(each["old"])), new=GpuUuid(str(each["new"])))
            for each in body.get("deviceMap", ())
        ),
        outcome=_word(Outcome, body["outcome"]),
        ending=_word(OperationState, body["ending"]),
        code=_word(Code, body["code"]),
        text=str(body.get("text", "")),
        warnings=tuple(map(str, body.get("warnings", ()))),
        answers=tuple(map(_answer, body.get("answers", ()))),
        acknowledged=bool(body.get("acknowledged", False)),
    )


def _target(body: Mapping[str, Any]) -> Target:
    return Target(
        container_id=str(body["containerId"]),
        pod_uid=str(body["podUid"]),
        pod_namespace=str(body["podNamespace"]),
        pod_name=str(body["podName"]),
        container_name=str(body["containerName"]),
        init=_process(body.get("init")),
    )


def _process(body: Mapping[str, Any] | None) -> ProcessRef | None:
    return None if body is None else ProcessRef(pid=int(body["pid"]), started=int(body["started"]))


def _held(body: Mapping[str, Any]) -> HeldProcess:
    process, state = _process(body["process"]), body["state"]
    if process is None:
        raise TypeError("a process is missing")
    return HeldProcess(
        process=process,
        found=_word(CudaState, body["found"]),
        state=_word(CudaState, state) if state is not None else None,
        gpu_bytes=int(body.get("gpuBytes", 0)),
    )


def _answer(body: Mapping[str, Any]) -> StoredAnswer:
    return StoredAnswer(
        phase=_word(HookPhase, body["phase"]),
        digest=str(body["digest"]),
        code=_word(Code, body["code"]),
        text=str(body["text"]),
    )


def _word(kind: type[E], word: Any) -> E:
    if not isinstance(word, str):
        raise TypeError(f"{kind.__name__} {word!r} is no word")
    try:
        return kind(word)
    except ValueError as error:
        raise NewerOperation(f"{kind.__name__} {word!r} is not known") from error
