"""What is published: devices of a pool, in the terms of resource.k8s.io/v1."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Version:
    """A version attribute; the text is strict semver 2.0.0."""

    text: str


AttributeValue = bool | int | str | Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """What a request takes of a capacity that it does not name, and the grid of what it may name.

    All in base units; `default` and `maximum` are whole steps above `minimum`.
    """

    default: int
    minimum: int
    maximum: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """An amount in base units (bytes for memory)."""

    value: int
    policy: RequestPolicy | None = None


class TaintEffect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Taint:
    key: str
    value: str
    effect: TaintEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of a ResourceSlice.

    Attributes:
        name: DNS label, unique in the pool.
        attributes, capacity: sorted by name; names are unqualified or of resource.kubernetes.io.
        shareable: the API's allowMultipleAllocations.
    """

    name: str
    attributes: tuple[tuple[str, AttributeValue], ...]
    capacity: tuple[tuple[str, Capacity], ...] = ()
    taints: tuple[Taint, ...] = ()
    shareable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All devices of this driver on one node.

    Attributes:
        name: the node's name, always.
        slices: devices per ResourceSlice, in allocation order; never empty (a pool without devices
            is one empty slice, which says that the driver is alive).
        notes: for people: what was left out and why; sorted.
    """

    driver: str
    name: str
    slices: tuple[tuple[Device, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        return tuple(device for devices in self.slices for device in devices)
