"""The stored form of a record: versioned JSON, apart from the values that the code works with.

Within a version fields may be added, and readers ignore those they do not know. A word that means
something (the version, a kind of step, a member of an enumeration) and is not known here was
written by a newer release: such an entry is left alone, never guessed at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, assert_never

from dra_driver.model.claim import ClaimRef, PodRef
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import GpuUse, PreparedDevice, Record, RecordState, Use
from dra_driver.model.share import (
    CheckpointPolicy,
    Expose,
    GpuShare,
    OnExceed,
    Qos,
    Sharing,
    TimeSlice,
)
from dra_driver.model.steps import EnsureShare, MarkClaim, SetTimeSlice, Step, WriteCdiSpec

VERSION = "gpuslice.io/record/v1"
"""Raised only where an old release would do harm by ignoring what is new."""

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FromTheFuture:
    """A newer release wrote it.

    Attributes:
        what: the version or the word that is not known here.
        held: see NewerRecord. Newer releases keep the fields that it is read from.
    """

    what: str
    held: Record | None = None


@dataclass(frozen=True, slots=True)
class Damaged:
    """Not a record at all, or half of one; `text` says what is wrong with it."""

    text: str


def encode(record: Record) -> str:
    """Spell a record; equal records are equal text."""
    body = {
        "version": VERSION,
        "claim": {
            "namespace": record.claim.namespace,
            "name": record.claim.name,
            "uid": record.claim.uid,
        },
        "state": record.state.value,
        "bootId": record.boot_id,
        "uses": [_use_json(use) for use in record.uses],
        "steps": [_step_json(step) for step in record.steps],
        "devices": [_device_json(device) for device in record.devices],
    }
    if record.pods:
        body["pods"] = [{"name": pod.name, "uid": pod.uid} for pod in record.pods]
    if record.checkpoint is not CheckpointPolicy.NONE:
        body["checkpoint"] = record.checkpoint.value
    if record.restore_from is not None:
        body["restoreFrom"] = record.restore_from
    return _canonical(body) + "\n"


def decode(content: bytes) -> Record | FromTheFuture | Damaged:
    """Read what `encode` of this or an older release wrote; whatever the bytes, nothing is raised.

    A record of this version without a field that later releases added reads as its default.
    """
    try:
        body = _object(json.loads(content))
        version = _text(body["version"])
        if version != VERSION:
            return FromTheFuture(version, _held(body))
        try:
            return _record(body)
        except _UnknownWordError as error:
            return FromTheFuture(str(error), _held(body))
    except KeyError as error:
        return Damaged(f"field {error} is missing")
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        return Damaged(str(error) or type(error).__name__)


class _UnknownWordError(Exception):
    """A word that this release does not know."""


def _use_json(use: GpuUse) -> dict[str, Any]:
    return {
        "gpu": use.gpu,
        "use": use.use.value,
        "device": use.device,
        "shareId": use.share_id,
        "computePercent": use.compute_percent,
        "memoryMib": use.memory_mib,
        "setting": use.setting,
    }


def _step_json(step: Step) -> dict[str, Any]:
    match step:
        case EnsureShare(share=share):
            return {"ensureShare": _share_json(share)}
        case SetTimeSlice(gpu=gpu, interval=interval):
            return {"setTimeSlice": {"gpu": gpu, "interval": interval.value}}
        case MarkClaim(claim_uid=claim_uid):
            return {"markClaim": {"claimUid": claim_uid}}
        case WriteCdiSpec(name=name, content=content):
            return {"writeCdiSpec": {"name": name, "content": content}}
        case _ as never:
            assert_never(never)


def _share_json(share: GpuShare) -> dict[str, Any]:
    return {
        "id": share.id,
        "gpu": share.gpu,
        "sharing": share.sharing.value,
        "computePercent": share.compute_percent,
        "memoryMib": share.memory_mib,
        "priority": share.priority,
        "qos": share.qos.value,
        "onExceed": share.on_exceed.value,
        "expose": share.expose.value,
    }


def _device_json(device: PreparedDevice) -> dict[str, Any]:
    return {
        "requests": list(device.requests),
        "pool": device.pool,
        "device": device.device,
        "cdiIds": list(device.cdi_ids),
        "shareId": device.share_id,
    }


def _record(body: Mapping[str, Any]) -> Record:
    claim = _object(body["claim"])
    return Record(
        claim=ClaimRef(_text(claim["namespace"]), _text(claim["name"]), _text(claim["uid"])),
        state=_word(RecordState, body["state"]),
        boot_id=_text(body["bootId"]),
        uses=_each(body["uses"], _use),
        steps=_each(body["steps"], _step),
        devices=_each(body["devices"], _device),
        pods=_each(body.get("pods", []), _pod),
        checkpoint=_word(CheckpointPolicy, body.get("checkpoint", CheckpointPolicy.NONE)),
        restore_from=_text_or_none(body.get("restoreFrom")),
    )


def _held(body: Mapping[str, Any]) -> Record | None:
    """What a record of a newer release holds; its own kinds of steps hold nothing known here."""
    try:
        steps = [_object(step) for step in _list(body["steps"])]
        understood = [step for step in steps if "ensureShare" in step]
        return _record({**body, "state": RecordState.PREPARED, "steps": understood, "devices": []})
    except (KeyError, ValueError, TypeError, AttributeError, _UnknownWordError):
        return None


def _use(body: Mapping[str, Any]) -> GpuUse:
    return GpuUse(
        gpu=GpuUuid(_text(body["gpu"])),
        use=_word(Use, body["use"]),
        device=_text(body["device"]),
        share_id=_text_or_none(body.get("shareId")),
        compute_percent=_number(body["computePercent"]),
        memory_mib=_number(body["memoryMib"]),
        setting=_text(body.get("setting", "")),
    )


def _step(body: Mapping[str, Any]) -> Step:
    if "ensureShare" in body:
        return EnsureShare(share=_share(_object(body["ensureShare"])))
    if "setTimeSlice" in body:
        fields = _object(body["setTimeSlice"])
        gpu, interval = GpuUuid(_text(fields["gpu"])), _word(TimeSlice, fields["interval"])
        return SetTimeSlice(gpu=gpu, interval=interval)
    if "markClaim" in body:
        return MarkClaim(claim_uid=_text(_object(body["markClaim"])["claimUid"]))
    if "writeCdiSpec" in body:
        fields = _object(body["writeCdiSpec"])
        return WriteCdiSpec(name=_text(fields["name"]), content=_text(fields["content"]))
    raise _UnknownWordError(f"step {', '.join(sorted(body))}")


def _share(body: Mapping[str, Any]) -> GpuShare:
    return GpuShare(
        id=_text(body["id"]),
        gpu=GpuUuid(_text(body["gpu"])),
        sharing=_word(Sharing, body["sharing"]),
        compute_percent=_number(body["computePercent"]),
        memory_mib=_number(body["memoryMib"]),
        priority=_number(body.get("priority", 0)),
        qos=_word(Qos, body.get("qos", Qos.GUARANTEED)),
        on_exceed=_word(OnExceed, body.get("onExceed", OnExceed.WARN)),
        expose=_word(Expose, body.get("expose", Expose.CONTROL)),
    )


def _device(body: Mapping[str, Any]) -> PreparedDevice:
    return PreparedDevice(
        requests=_texts(body["requests"]),
        pool=_text(body["pool"]),
        device=_text(body["device"]),
        cdi_ids=_texts(body["cdiIds"]),
        share_id=_text_or_none(body.get("shareId")),
    )


def _pod(body: Mapping[str, Any]) -> PodRef:
    return PodRef(_text(body["name"]), _text(body["uid"]))


def _each(value: Any, read: Callable[[Mapping[str, Any]], T]) -> tuple[T, ...]:
    return tuple(read(_object(item)) for item in _list(value))


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.40} stands where an object is expected")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.40} stands where a list is expected")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(item) for item in _list(value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} stands where text is expected")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r:.40} stands where a whole number is expected")
    return value


def _word(kind: type[E], value: Any) -> E:
    try:
        return kind(_text(value))
    except ValueError:
        raise _UnknownWordError(f"{kind.__name__} {value!r:.40}") from None
