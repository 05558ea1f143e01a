"""Which claims a container has: by what is mounted into it, and by what the kubelet tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver.model.claim import PodRef
from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.record import Record
from dra_driver.model.steps import EnsureShare, MarkClaim
from dra_driver.plan.containers import claims_used

Json = Mapping[str, Any]
_Place = tuple[str, str]
"""Namespace and name of a pod."""


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
    return tuple(each for each in told if not wanted.isdisjoint(each.cdi_ids))


def records_told(records: Iterable[Record], container: PodClaims) -> tuple[Record, ...]:
    """Records of the claims that the kubelet lists for a container; by UID."""
    listed = set(container.cdi_ids)
    found = (each for each in records if listed & _cdi_ids(each))
    return tuple(sorted(found, key=lambda each: each.claim.uid))


def records_unlisted(
    records: Iterable[Record], told: Iterable[PodClaims], uid: str
) -> tuple[Record, ...]:
    """Records of a pod, by its UID, whose claims the kubelet lists for none of its containers.

    It lists no init containers that are to end, and nothing yet right after its own restart.
    """
    mine = tuple(each for each in records if _names(each, uid))
    listed = {cdi for each in _told_of(told, _places(mine, uid)) for cdi in each.cdi_ids}
    return tuple(each for each in mine if each.devices and not listed & _cdi_ids(each))


def sole_container(
    told: Iterable[PodClaims], records: Iterable[Record], shown: Iterable[Record], uid: str
) -> PodClaims | None:
    """The container of a pod that has claims of `shown`, where what was told leaves no doubt.

    None where it could be another one: several have them, another pod bore the same name, or there
    are claims of the pod that no listed container has.

    Args:
        told: by the kubelet, since the container runs.
        records: all.
        shown: those of claims that the container is seen to have.
        uid: of the pod.
    """
    told, records = tuple(told), tuple(records)
    here = _places(shown, uid)
    own = containers_with(_told_of(told, here), shown)
    others = any(place in here and pod.uid != uid for place, pod in _pods(records))
    if len(own) != 1 or others or records_unlisted(records, told, uid):
        return None
    return own[0]


def records_doubtful(
    records: Iterable[Record],
    told: Iterable[PodClaims],
    shown: Iterable[Record],
    uid: str,
) -> tuple[Record, ...]:
    """Records of claims that a container of a pod may have, if nobody tells which container it is.

    Arguments as of `sole_container`.
    """
    told = tuple(told)
    here = _places(records, uid)
    # Those of a later pod of the same name are none of it.
    records = tuple(
        each
        for each in records
        if _names(each, uid) or here.isdisjoint(place for place, _ in _pods((each,)))
    )
    own = containers_with(_told_of(told, here), shown)
    listed = (each for container in own for each in records_told(records, container))
    return (*listed, *records_unlisted(records, told, uid))


def container_in(
    pod: Json,
    records: Iterable[Record],
    having: Iterable[PodClaims],
    *,
    uid: str,
    container_id: str,
) -> PodClaims | None:
    """A container by its pod, as the API server gave it; None: it is not in this pod.

    Args:
        pod: one that may be the container's.
        records: of claims that it may have.
        having: containers that the kubelet listed with a claim of it.
        uid: of the pod that the container is in.
        container_id: without the runtime's name.
    """
    if pod_uid(pod) != uid:
        return None
    metadata = _mapping(pod.get("metadata"))
    place = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
    ids = container_ids(pod)
    name = next((name for name, each in ids.items() if each == container_id), None)
    if name is None:
        # Of one that has just been started the API server does not know yet.
        new = [
            each
            for each in having
            if (each.namespace, each.pod) == place and each.container not in ids
        ]
        return new[0] if len(new) == 1 else None
    return _as_told(place, name, claims_used(pod, name), records)


def places_of(records: Iterable[Record], uid: str) -> tuple[_Place, ...]:
    """Namespace and name of a pod as records name it, sorted."""
    return tuple(sorted(_places(records, uid)))


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


def _as_told(
    place: _Place, name: str, claims: frozenset[str], records: Iterable[Record]
) -> PodClaims:
    """A container and its claims by name, as the kubelet would list it."""
    namespace, pod = place
    used = (
        each for each in records if each.claim.namespace == namespace and each.claim.name in claims
    )
    return PodClaims(
        namespace=namespace,
        pod=pod,
        container=name,
        claims=tuple(sorted(claims)),
        cdi_ids=tuple(sorted({cdi for each in used for cdi in _cdi_ids(each)})),
    )


def _places(records: Iterable[Record], uid: str) -> set[_Place]:
    return {place for place, pod in _pods(records) if pod.uid == uid}


def _pods(records: Iterable[Record]) -> Iterator[tuple[_Place, PodRef]]:
    for record in records:
        for pod in record.pods:
            yield (record.claim.namespace, pod.name), pod


def _names(record: Record, uid: str) -> bool:
    return any(pod.uid == uid for pod in record.pods)


def _told_of(told: Iterable[PodClaims], places: set[_Place]) -> tuple[PodClaims, ...]:
    return tuple(each for each in told if (each.namespace, each.pod) in places)


def _share_ids(record: Record) -> set[str]:
    return {step.share.id for step in record.steps if isinstance(step, EnsureShare)}


def _cdi_ids(record: Record) -> set[str]:
    return {cdi_id for device in record.devices for cdi_id in device.cdi_ids}


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
