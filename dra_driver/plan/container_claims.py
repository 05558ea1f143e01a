"""Which claims a container has: by what is mounted into it, and by what the kubelet tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.record import Record
from dra_driver.model.steps import EnsureShare, MarkClaim

Json = Mapping[str, Any]


def records_shown(
    records: Iterable[Record], owner: ProcessOwner | None, claims: Iterable[str]
) -> tuple[Record, ...]:
    """Records that a process shows by its mounts, or whose claims' UIDs are named; by UID."""
    shares = set(owner.shares) if owner is not None else set()
    uids = {*claims, *(owner.claims if owner is not None else ())}
    found = (each for each in records if each.claim.uid in uids or shares & _share_ids(each))
    return tuple(sorted(found, key=lambda each: each.claim.uid))


def unmarked(records: Iterable[Record]) -> tuple[Record, ...]:
    """Records of claims whose containers show no mark, as an older release prepared them."""
    return tuple(
        each
        for each in records
        if each.devices and not any(isinstance(step, MarkClaim) for step in each.steps)
    )


def containers_with(told: Iterable[PodClaims], records: Iterable[Record]) -> tuple[PodClaims, ...]:
    """Containers that have at least one of the claims of `records`, in their order."""
    wanted = {cdi_id for record in records for cdi_id in _cdi_ids(record)}
    return tuple(each for each in told if wanted & set(each.cdi_ids))


def records_told(records: Iterable[Record], container: PodClaims) -> tuple[Record, ...]:
    """Records of the claims that the kubelet lists for a container; by UID."""
    listed = set(container.cdi_ids)
    found = (each for each in records if listed & _cdi_ids(each))
    return tuple(sorted(found, key=lambda each: each.claim.uid))


def pod_uid(pod: Json) -> str:
    return str(_mapping(pod.get("metadata")).get("uid", ""))


def container_ids(pod: Json) -> dict[str, str]:
    """Ids of a pod's containers by name, without the runtime's name; only those that run."""
    status = _mapping(pod.get("status"))
    found = {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(kind) or ():
            container = _mapping(each).get("containerID")
            if container:
                found[str(each["name"])] = str(container).rpartition("://")[2]
    return found


def _share_ids(record: Record) -> set[str]:
    return {step.share.id for step in record.steps if isinstance(step, EnsureShare)}


def _cdi_ids(record: Record) -> set[str]:
    return {cdi_id for device in record.devices for cdi_id in device.cdi_ids}


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
