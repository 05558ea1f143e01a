"""What the CDI specs of records put into a container."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dra_driver.model.record import Record
from dra_driver.model.steps import WriteCdiSpec

_LIBRARY = "libcuda.so."


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecView:
    """Paths in the container.

    Attributes:
        mounts: mount points, sorted.
        devices: device nodes, sorted.
        library: the CUDA driver library with the longest name, which has its version; empty where
            none is mounted.
    """

    mounts: tuple[str, ...]
    devices: tuple[str, ...]
    library: str


def view_specs(records: Iterable[Record]) -> SpecView:
    edits = tuple(_edits(records))
    mounts = {str(each["containerPath"]) for every in edits for each in every.get("mounts", ())}
    nodes = {str(each["path"]) for every in edits for each in every.get("deviceNodes", ())}
    libraries = (path for path in mounts if _name(path).startswith(_LIBRARY))
    return SpecView(
        mounts=tuple(sorted(mounts)),
        devices=tuple(sorted(nodes)),
        library=max(libraries, key=lambda path: (len(_name(path)), path), default=""),
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _edits(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    for record in records:
        for step in record.steps:
            if isinstance(step, WriteCdiSpec):
                spec = json.loads(step.content)
                yield spec.get("containerEdits", {})
                yield from (each.get("containerEdits", {}) for each in spec.get("devices", ()))
