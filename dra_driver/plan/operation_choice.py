"""Which operation took a checkpoint, by what the kubelet calls its archive.

Operations are in the JSON of the checkpoint service's protocol, as they come over command lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d))\.tar$")

FINAL = frozenset(
    f"STATE_{name}"
    for name in ("DONE", "EXPIRED", "FAILED_CLEAN", "FAILED_UNHEALTHY", "FAILED_KILLED")
)


def archive_time_s(archive: str) -> float | None:
    """When a checkpoint began, in seconds since the epoch of the node's clock, to the second."""
    found = _TIME.search(archive)
    return datetime.fromisoformat(found[1]).timestamp() if found is not None else None


def operations_of(
    operations: Iterable[Mapping[str, Any]], *, pod_uid: str, container: str
) -> tuple[Mapping[str, Any], ...]:
    """Give those that are checkpoints of a container, in their order."""
    return tuple(
        each
        for each in operations
        if each.get("kind") == "KIND_CHECKPOINT"
        and (each.get("target") or {}).get("podUid") == pod_uid
        and (each.get("target") or {}).get("containerName") in {container, ""}
    )


def checkpoint_operation(
    operations: Iterable[Mapping[str, Any]], *, pod_uid: str, container: str, archive: str
) -> Mapping[str, Any] | None:
    """The first operation on the container that began with the archive, or after it."""
    began_s = archive_time_s(archive)
    found = operations_of(operations, pod_uid=pod_uid, container=container)
    if began_s is None:
        return found[-1] if found else None
    return next((each for each in found if float(each["startedSeconds"]) >= began_s), None)


def word(name: str) -> str:
    """A state or kind for people: "failed clean"."""
    return name.partition("_")[2].replace("_", " ").lower()
