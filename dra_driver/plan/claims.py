"""From a ResourceClaim as raw JSON to what this driver has to prepare.

Source: resource.k8s.io/v1, ResourceClaim. What other drivers contribute to the same claim is not
looked at: its shape is theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from dra_driver.errors import ClaimRejected, NotReady, Reason
from dra_driver.model.claim import (
    AllocationResult,
    Claim,
    ClaimRef,
    ConfigEntry,
    ConfigSource,
    PodRef,
)
from dra_driver.model.quantity import parse_quantity
from dra_driver.model.record import Record

_SHOWN_CHARACTERS = 80
_LARGEST_AMOUNT = Decimal(1 << 63)


def parse_claim(obj: Mapping[str, Any], ref: ClaimRef, *, driver: str, node: str) -> Claim:
    """Reduce the claim that the API server gave for `ref` to the parts of `driver`.

    Raises:
        NotReady: it is not allocated (yet), or the answer is no ResourceClaim.
        ClaimRejected: it is another claim of the same name, its devices are of another node, or one
            of this driver's parts is malformed.
    """
    return _Parser(ref, driver=driver, node=node).claim(obj)


def is_allocated_otherwise(obj: Mapping[str, Any], record: Record, *, driver: str) -> bool:
    """Whether a claim now has other devices of `driver` than those that were prepared for it.

    Its pods are gone then, or the claim could not have been given back; a claim that shows no
    devices is not judged.
    """
    found: Any = obj
    for key in ("status", "allocation", "devices", "results"):
        found = found.get(key) if isinstance(found, Mapping) else None
    results = found if isinstance(found, list) else []
    now = [
        (result.get("pool"), result.get("device"), result.get("shareID"))
        for result in results
        if isinstance(result, Mapping) and result.get("driver") == driver
    ]
    then = [(each.pool, each.device, each.share_id) for each in record.devices]
    # Whatever a claim holds has a text, while its parts need not compare with each other.
    return bool(now) and sorted(now, key=repr) != sorted(then, key=repr)


class _Parser:
    """Holds what every error text names."""

    def __init__(self, ref: ClaimRef, *, driver: str, node: str) -> None:
        self._ref = ref
        self._driver = driver
        self._node = node

    def claim(self, obj: Mapping[str, Any]) -> Claim:
        self._check_identity(obj)
        status = obj.get("status")
        allocation = status.get("allocation") if isinstance(status, dict) else None
        if not isinstance(allocation, dict):
            raise NotReady(
                Reason.NOT_ALLOCATED,
                f"claim {self._ref} is not allocated: wait until the scheduler has allocated it, or"
                " delete the pod if its claim was deallocated",
            )
        devices = self._mapping(allocation.get("devices"), "status.allocation.devices")
        asked = self._asked(obj.get("spec"))
        return Claim(
            ref=self._ref,
            results=tuple(self._results(devices.get("results"), asked)),
            configs=self._configs(devices.get("config")),
            consumers=_consumers(obj),
        )

    def _check_identity(self, obj: Mapping[str, Any]) -> None:
        metadata = obj.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if not isinstance(uid, str) or not uid:
            raise NotReady(
                Reason.API_UNAVAILABLE,
                f"the API server's answer for claim {self._ref} is no ResourceClaim (kind "
                f"{_shown(obj.get('kind'))}): check the API server, the call is repeated",
            )
        if uid != self._ref.uid:
            raise ClaimRejected(
                Reason.CLAIM_REPLACED,
                f"claim {self._ref} with UID {self._ref.uid} was replaced: the claim of that name "
                f"now has UID {uid}; delete the pod that was made for the old one",
            )

    def _results(
        self, results: object, asked: Mapping[str, frozenset[str]]
    ) -> Iterator[AllocationResult]:
        for index, item in enumerate(self._list(results, "status.allocation.devices.results")):
            path = f"status.allocation.devices.results[{index}]"
            fields = self._mapping(item, path)
            if fields.get("driver") == self._driver:
                yield self._result(fields, asked, path)

    def _result(
        self, fields: Mapping[str, Any], asked: Mapping[str, frozenset[str]], path: str
    ) -> AllocationResult:
        request, pool, device = (
            self._text(fields.get(name), f"{path}.{name}") for name in ("request", "pool", "device")
        )
        if pool != self._node:
            raise ClaimRejected(
                Reason.UNKNOWN_DEVICE,
                f"claim {self._ref} holds device {device} of pool {pool}, but this node is "
                f"{self._node}: delete the pod and its claim, so that they are scheduled anew",
            )
        share_id = fields.get("shareID")
        consumed = self._amounts(fields.get("consumedCapacity"), f"{path}.consumedCapacity")
        return AllocationResult(
            request=request,
            driver=self._driver,
            pool=pool,
            device=device,
            share_id=self._text(share_id, f"{path}.shareID") if share_id is not None else None,
            admin_access=fields.get("adminAccess") is True,
            consumed=consumed,
            # A request that the spec does not show is taken to have asked for what it was given:
            # the smaller promise, where all of the GPU would be the larger one.
            asked=asked.get(request, frozenset(consumed)),
        )

    def _amounts(self, value: object, path: str) -> dict[str, Decimal]:
        amounts = {}
        for name, quantity in sorted(self._optional_mapping(value, path).items()):
            amounts[self._unqualified(name)] = self._quantity(quantity, f"{path}[{name}]")
        return amounts

    def _quantity(self, value: object, path: str) -> Decimal:
        spelled = isinstance(value, str | int) and not isinstance(value, bool)
        try:
            amount = parse_quantity(str(value)) if spelled else None
        except (ValueError, ArithmeticError):
            amount = None
        if amount is None or not 0 <= amount < _LARGEST_AMOUNT:
            raise self._malformed(path, value, "a quantity that is not negative, such as 6Gi or 25")
        return amount

    def _asked(self, spec: object) -> dict[str, frozenset[str]]:
        """Capacity names that requests spell out, by the request name of allocation results."""
        devices = spec.get("devices") if isinstance(spec, dict) else None
        requests = devices.get("requests") if isinstance(devices, dict) else None
        asked: dict[str, frozenset[str]] = {}
        for index, item in enumerate(self._list(requests, "spec.devices.requests")):
            path = f"spec.devices.requests[{index}]"
            request = self._mapping(item, path)
            name = self._text(request.get("name"), f"{path}.name")
            exactly = self._optional_mapping(request.get("exactly"), f"{path}.exactly")
            asked[name] = self._capacity_names(exactly, f"{path}.exactly")
            choices = self._list(request.get("firstAvailable"), f"{path}.firstAvailable")
            for number, choice in enumerate(choices):
                place = f"{path}.firstAvailable[{number}]"
                chosen = self._mapping(choice, place)
                sub = self._text(chosen.get("name"), f"{place}.name")
                asked[f"{name}/{sub}"] = self._capacity_names(chosen, place)
        return asked

    def _capacity_names(self, request: Mapping[str, Any], path: str) -> frozenset[str]:
        capacity = self._optional_mapping(request.get("capacity"), f"{path}.capacity")
        names = self._optional_mapping(capacity.get("requests"), f"{path}.capacity.requests")
        return frozenset(self._unqualified(name) for name in names)

    def _configs(self, configs: object) -> tuple[ConfigEntry, ...]:
        found: list[ConfigEntry] = []
        sources: list[ConfigSource] = []
        for index, item in enumerate(self._list(configs, "status.allocation.devices.config")):
            path = f"status.allocation.devices.config[{index}]"
            fields = self._mapping(item, path)
            source = self._source(fields.get("source"), f"{path}.source")
            number = sources.count(source)
            sources.append(source)
            opaque = self._optional_mapping(fields.get("opaque"), f"{path}.opaque")
            if opaque.get("driver") == self._driver:
                name = "class" if source is ConfigSource.CLASS else "claim"
                path = f"{name} config {number}"
                found.append(self._config(fields, opaque, source=source, path=path))
        # Class before claim, whatever the order of the list: a class gives defaults.
        return tuple(sorted(found, key=lambda entry: entry.source is ConfigSource.CLAIM))

    def _config(
        self,
        fields: Mapping[str, Any],
        opaque: Mapping[str, Any],
        *,
        source: ConfigSource,
        path: str,
    ) -> ConfigEntry:
        parameters = opaque.get("parameters")
        if not isinstance(parameters, dict):
            raise self._malformed(f"{path}, field parameters", parameters, "an object")
        requests = self._list(fields.get("requests"), f"{path}, field requests")
        return ConfigEntry(
            source=source,
            requests=tuple(self._text(name, f"{path}, field requests") for name in requests),
            parameters=parameters,
            path=path,
        )

    def _source(self, value: object, path: str) -> ConfigSource:
        for source in ConfigSource:
            if value == source.value:
                return source
        raise self._malformed(path, value, " or ".join(ConfigSource))

    def _unqualified(self, name: str) -> str:
        return name.removeprefix(f"{self._driver}/")

    def _optional_mapping(self, value: object, path: str) -> Mapping[str, Any]:
        return {} if value is None else self._mapping(value, path)

    def _mapping(self, value: object, path: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._malformed(path, value, "an object")
        return value

    def _list(self, value: object, path: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._malformed(path, value, "a list")
        return value

    def _text(self, value: object, path: str) -> str:
        # Half a surrogate pair, which JSON can hold, could not be told to the kubelet.
        if not (isinstance(value, str) and value and value.isprintable()):
            raise self._malformed(path, value, "a string of printable characters")
        return value

    def _malformed(self, path: str, value: object, supported: str) -> ClaimRejected:
        return ClaimRejected(
            Reason.INVALID_CONFIG,
            f"claim {self._ref}: {path}: {_shown(value)} is not supported: write {supported}",
        )


def _consumers(obj: Mapping[str, Any]) -> tuple[PodRef, ...]:
    # Not a driver's to judge: whatever is no pod is left out.
    reserved = obj["status"].get("reservedFor")
    pods = {
        PodRef(each["name"], each["uid"])
        for each in (reserved if isinstance(reserved, list) else ())
        if isinstance(each, dict)
        and each.get("resource") == "pods"
        and not each.get("apiGroup")
        and all(isinstance(each.get(field), str) for field in ("name", "uid"))
    }
    return tuple(sorted(pods))


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
