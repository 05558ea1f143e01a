"""A ResourceClaim as far as this driver is concerned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class ClaimRef:
    """Identity of a claim; the UID alone is the key, names are for people."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class PodRef:
    """A pod that uses a claim; of the claim's namespace."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationResult:
    """One device that the scheduler gave to a claim.

    Attributes:
        request: "main", or "main/sub" for a firstAvailable alternative.
        consumed: capacity name → amount in base units; empty where the device is not shareable.
        asked: capacity names that the request (or the chosen subrequest) spells out in
            `capacity.requests`; `consumed` cannot tell, because it also holds defaults.
    """

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = None
    admin_access: bool = False
    consumed: Mapping[str, Decimal]
    asked: frozenset[str] = frozenset()

    @property
    def main_request(self) -> str:
        return self.request.partition("/")[0]


class ConfigSource(StrEnum):
    """Who wrote a config entry; a claim's wins over its class's."""

    CLASS = "FromClass"
    CLAIM = "FromClaim"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One opaque config of an allocation, still undecoded.

    Attributes:
        requests: empty means all; an entry "main" covers every "main/sub".
        parameters: the JSON object.
        path: where it stands, for error texts ("class config 0", "claim config 2").
    """

    source: ConfigSource
    requests: tuple[str, ...]
    parameters: Mapping[str, Any]
    path: str

    def covers(self, request: str) -> bool:
        main = request.partition("/")[0]
        return not self.requests or request in self.requests or main in self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An allocated claim, reduced to one driver.

    Attributes:
        results: of this driver only, in the order of the allocation.
        configs: of this driver only: class before claim, each in declared order; later wins.
        consumers: pods that it is reserved for, sorted.
    """

    ref: ClaimRef
    results: tuple[AllocationResult, ...]
    configs: tuple[ConfigEntry, ...]
    consumers: tuple[PodRef, ...] = ()
