"""From the ResourceSlices that are there to those that should be.

The rules are those of k8s.io/dynamic-resource-allocation/resourceslice (syncPool, 1.36), which work
with every version: consumers look only at slices of the newest generation, and only when there are
as many as each of them says. So one slice may change in place; when more of them change, all move
to a new generation together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from dra_driver.plan.slice_json import (
    API_VERSION,
    KIND,
    Json,
    canonical_spec,
    canonical_taint,
    same_spec,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateSlice:
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceSlice:
    """The body carries the resource version that was read."""

    name: str
    body: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSlice:
    name: str
    uid: str
    resource_version: str


SliceOp = CreateSlice | ReplaceSlice | DeleteSlice

_INDEX_DIGITS = 5
_INDEX_PREFIX = re.compile(r"^([0-9a-f]+)-")
_GENERATE_NAME_MAX = 58
"""What the API server keeps of generateName."""


def reconcile(
    desired: tuple[Json, ...], actual: tuple[Json, ...], owner_uid: str
) -> tuple[SliceOp, ...]:
    """Give the writes that make `actual` say what `desired` says; none where it does already.

    Deletes come first, then replacements, then creations: what is half done in between is an
    incomplete pool, never a wrong one.

    Args:
        desired: specs of all slices of one pool, in order, as of `slice_specs`; at least one.
        actual: stored slices; those of other drivers or nodes are left alone.
        owner_uid: of the Node object; slices that name another UID would be garbage-collected.
    """
    pool = _Pool(desired=desired, owner_uid=owner_uid)
    own = tuple(sorted((each for each in actual if pool.owns(each)), key=_name))
    slots, leftovers = pool.assign(own)
    changed = {
        index
        for index, stored in slots.items()
        if not same_spec(desired[index], stored.get("spec") or {})
    }
    added = [index for index in range(len(desired)) if index not in slots]
    newest = max((_generation(each) for each in own if pool.named(each)), default=0)
    in_place = newest > 0 and not added and len(changed) <= 1
    generation = newest if in_place else newest + 1
    replaced = [
        index
        for index, stored in sorted(slots.items())
        if index in changed or generation != newest or not pool.owned_by_node(stored)
    ]
    return (
        *(_delete(stored) for stored in leftovers),
        *(pool.replacement(index, slots[index], generation) for index in replaced),
        *(pool.creation(index, generation) for index in added),
    )


def dropped_fields(sent: Json, stored: Json) -> tuple[str, ...]:
    """Name what the server did not store of a slice's spec, without indices; sorted.

    For example "devices.allowMultipleAllocations" or "devices.capacity.default". Empty where all
    was kept.
    """
    lost: set[str] = set()
    _compare(canonical_spec(sent), canonical_spec(stored), "", lost)
    return tuple(sorted(lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    desired: tuple[Json, ...]
    owner_uid: str

    @property
    def spec(self) -> Json:
        return self.desired[0]

    def owns(self, stored: Json) -> bool:
        spec = stored.get("spec") or {}
        return all(spec.get(key) == self.spec[key] for key in ("driver", "nodeName"))

    def named(self, stored: Json) -> bool:
        """Whether a slice is of this pool; the driver's other pools on the node are leftovers."""
        name: str | None = (stored["spec"].get("pool") or {}).get("name")
        return bool(name == self.spec["pool"]["name"])

    def assign(self, own: tuple[Json, ...]) -> tuple[dict[int, Json], list[Json]]:
        """Match slices to places by the index in front of their names; the rest is left over."""
        newest = max((_generation(each) for each in own if self.named(each)), default=0)
        slots: dict[int, Json] = {}
        leftovers: list[Json] = []
        for stored in own:
            index = self._index(stored)
            fits = self.named(stored) and _generation(stored) == newest and index not in slots
            if fits and 0 <= index < len(self.desired):
                slots[index] = stored
            else:
                leftovers.append(stored)
        return slots, leftovers

    def owned_by_node(self, stored: Json) -> bool:
        owners: tuple[Json, ...] = tuple(stored["metadata"].get("ownerReferences") or ())
        return self._owner() in owners

    def replacement(self, index: int, stored: Json, generation: int) -> ReplaceSlice:
        metadata = {
            key: value for key, value in stored["metadata"].items() if key != "managedFields"
        }
        others = [
            owner
            for owner in metadata.get("ownerReferences") or ()
            if owner.get("kind") != "Node" and not owner.get("controller")
        ]
        metadata["ownerReferences"] = [self._owner(), *others]
        spec = self._spec(index, generation)
        _keep_taint_times(spec, stored["spec"])
        return ReplaceSlice(name=_name(stored), body=_body(metadata, spec))

    def creation(self, index: int, generation: int) -> CreateSlice:
        metadata = {
            "generateName": self._generate_name(index),
            "ownerReferences": [self._owner()],
        }
        return CreateSlice(body=_body(metadata, self._spec(index, generation)))

    def _spec(self, index: int, generation: int) -> dict[str, Any]:
        spec: dict[str, Any] = deepcopy(dict(self.desired[index]))
        spec["pool"]["generation"] = generation
        return spec

    def _owner(self) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self.spec["nodeName"],
            "uid": self.owner_uid,
            "controller": True,
        }

    def _digits(self) -> int:
        return max(_INDEX_DIGITS, len(f"{len(self.desired) - 1:x}"))

    def _index(self, stored: Json) -> int:
        match = _INDEX_PREFIX.match(_name(stored))
        if match is None or len(match.group(1)) != self._digits():
            return -1
        return int(match.group(1), 16)

    def _generate_name(self, index: int) -> str:
        # From 1.36 the scheduler visits slices by name, so the index comes first.
        name = f"{index:0{self._digits()}x}-{self.spec['driver']}-{self.spec['nodeName']}"
        return name[: _GENERATE_NAME_MAX - 1].rstrip(".-") + "-"


def _body(metadata: Json, spec: Json) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": dict(metadata), "spec": dict(spec)}


def _delete(stored: Json) -> DeleteSlice:
    metadata = stored["metadata"]
    return DeleteSlice(
        name=_name(stored), uid=metadata["uid"], resource_version=metadata["resourceVersion"]
    )


def _keep_taint_times(spec: dict[str, Any], stored: Json) -> None:
    """Copy `timeAdded` of taints that stay: without it the server would say that they are new."""
    times: dict[str, list[Json]] = {
        device["name"]: device.get("taints") or [] for device in stored.get("devices") or ()
    }
    for device in spec.get("devices") or ():
        for taint in device.get("taints") or ():
            for old in times.get(device["name"], ()):
                if canonical_taint(old) == canonical_taint(taint) and old.get("timeAdded"):
                    taint["timeAdded"] = old["timeAdded"]


def _compare(sent: Any, stored: Any, path: str, lost: set[str]) -> None:
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        for key, value in sent.items():
            _compare(value, stored.get(key), f"{path}.{key}".lstrip("."), lost)
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for one, other in zip(sent, stored, strict=True):
            _compare(one, other, path, lost)
    elif sent != stored:
        lost.add(path)


def _name(stored: Json) -> str:
    name: str = stored["metadata"]["name"]
    return name


def _generation(stored: Json) -> int:
    return int((stored["spec"].get("pool") or {}).get("generation") or 0)
