"""Whether one container would get two shares under MPS.

A process is a client of one daemon, which the variable CUDA_MPS_PIPE_DIRECTORY names: of two shares
in one container the later would win in silence. Which container uses which request of which claim
stands in the pod alone. It is read only where a claim has two such shares, or its pod has another
claim with one: the ordinary claim costs no look.

A pod that begins to use a claim which is prepared already causes no call, so it is not seen here.

Source: core/v1, Pod: spec.resourceClaims, status.resourceClaimStatuses, containers' resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.claim import PodRef
from dra_driver.model.record import Record
from dra_driver.model.share import Sharing

Json = Mapping[str, Any]


def has_mps_share(record: Record) -> bool:
    return any(_is_mps(use.setting) for use in record.uses)


def pods_to_read(record: Record, others: Iterable[Record]) -> tuple[PodRef, ...]:
    """Give the pods of `record` whose containers may get two shares, with those of `others`."""
    mine = _mps_requests(record)
    if not mine:
        return ()
    if len(mine) > 1:
        return record.pods
    theirs = {
        pod.uid
        for other in others
        if other.claim != record.claim and has_mps_share(other)
        for pod in other.pods
    }
    return tuple(pod for pod in record.pods if pod.uid in theirs)


def claims_used(pod: Json, container: str) -> frozenset[str]:
    """Names of the claims that a container of a pod uses, as the API server gave the pod."""
    claims = _claims_of(pod)
    return frozenset(
        claims.get(str(used.get("name")), "")
        for each in _containers(pod)
        if each.get("name") == container
        for used in _items(_mapping(each.get("resources")).get("claims"))
    ) - {""}


def check_containers(pod: Json, record: Record, others: Iterable[Record]) -> None:
    """Check every container of a pod of `record`, as the API server gave it.

    What is not of a pod's shape uses nothing.

    Raises:
        ClaimRejected: a container would get two shares under MPS.
    """
    beside = (other for other in others if other.claim.namespace == record.claim.namespace)
    by_claim = {each.claim.name: each for each in (*beside, record)}
    claims = _claims_of(pod)
    for container in _containers(pod):
        shares = dict.fromkeys(_shares_of(container, claims, by_claim))
        if len(shares) > 1 and any(claim == record.claim.name for claim, _ in shares):
            raise ClaimRejected(
                Reason.NOT_SUPPORTED,
                f"claim {record.claim}: container {container.get('name')} of pod "
                f"{_mapping(pod.get('metadata')).get('name')} would get several MPS shares, "
                f"{_listed(shares)}, but it can use one: give each its own container (name the "
                "`request` in the container's resources.claims), or ask for whole GPUs",
            )


def _mps_requests(record: Record) -> tuple[str, ...]:
    requests = (
        name
        for use, device in zip(record.uses, record.devices, strict=False)
        if _is_mps(use.setting)
        for name in device.requests
    )
    return tuple(dict.fromkeys(requests))


def _is_mps(setting: str) -> bool:
    return setting.partition("=")[0] == Sharing.MPS


def _claims_of(pod: Json) -> dict[str, str]:
    """Names of claims by the names that containers use for them."""
    spec, status = _mapping(pod.get("spec")), _mapping(pod.get("status"))
    made = _items(status.get("resourceClaimStatuses"))
    declared = _items(spec.get("resourceClaims"))
    return {
        str(each.get("name")): str(each["resourceClaimName"])
        for each in (*made, *declared)
        if each.get("resourceClaimName")
    }


def _containers(pod: Json) -> Iterator[Json]:
    spec = _mapping(pod.get("spec"))
    for kind in ("initContainers", "containers"):
        yield from _items(spec.get(kind))


def _shares_of(
    container: Json, claims: Mapping[str, str], by_claim: Mapping[str, Record]
) -> Iterator[tuple[str, str]]:
    """Claim and request of each share under MPS that a container gets."""
    for used in _items(_mapping(container.get("resources")).get("claims")):
        name = claims.get(str(used.get("name")), "")
        record = by_claim.get(name)
        for request in _mps_requests(record) if record is not None else ():
            if used.get("request") in (None, "", request):
                yield name, request


def _listed(shares: Iterable[tuple[str, str]]) -> str:
    return " and ".join(f"request {request} of claim {claim}" for claim, request in shares)


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}


def _items(value: object) -> tuple[Json, ...]:
    items = value if isinstance(value, list) else []
    return tuple(each for each in items if isinstance(each, Mapping))
