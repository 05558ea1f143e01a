"""What an allocation is decided from: offers, claims, and what is taken already.

Amounts are exact decimals in base units (bytes for memory): requests and policies may be fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from dra_driver.errors import GpusliceError
from dra_driver.model.pool import AttributeValue

RESULTS_MAX = 32
"""Devices that one claim can be given (resource.k8s.io/v1, AllocationResultsMaxSize)."""


class AllocationError(GpusliceError):
    """The attempt failed as a whole, on all nodes; Kubernetes' scheduler tries the pod again."""


class SchedulerPanicError(AllocationError):
    """Kubernetes' scheduler of this version would die here, and again after each restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRules:
    """Which scheduler is followed.

    Attributes:
        minor: up to 34 the rules are those of 1.34.4, from then on those of 1.37.2.
        consumable: the feature gate DRAConsumableCapacity.
        taints: the feature gate DRADeviceTaints.
    """

    minor: int
    consumable: bool = True
    taints: bool = True

    @property
    def first(self) -> bool:
        """Whether it is the first version that counts capacity, with that version's faults."""
        return self.minor <= 34  # noqa: PLR2004 - the version


@dataclass(frozen=True, slots=True, order=True)
class DeviceId:
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPolicy:
    """How an amount that is asked becomes an amount that is taken; None: not limited that way."""

    default: Decimal | None = None
    minimum: Decimal | None = None
    maximum: Decimal | None = None
    step: Decimal | None = None
    values: tuple[Decimal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedCapacity:
    value: Decimal
    policy: CapacityPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTaint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One device of a ResourceSlice; names of attributes and capacities are as published."""

    id: DeviceId
    attributes: Mapping[str, AttributeValue]
    capacity: Mapping[str, OfferedCapacity]
    shareable: bool = False
    taints: tuple[OfferedTaint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedSlice:
    """One ResourceSlice; devices in published order.

    Attributes:
        node: whose devices they are; empty: reachable from all nodes.
        pool_slices: how many slices the pool says to have.
    """

    name: str
    driver: str
    pool: str
    generation: int
    pool_slices: int
    node: str
    offers: tuple[Offer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedPool:
    """One pool as seen from a node.

    Attributes:
        incomplete: slices of it are missing.
        invalid: why it cannot be used; empty where it can.
    """

    driver: str
    name: str
    slices: tuple[OfferedSlice, ...] = ()
    incomplete: bool = False
    invalid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Empty key or effect: any; `exists`: any value."""

    key: str
    exists: bool
    value: str
    effect: str

    def tolerates(self, taint: OfferedTaint) -> bool:
        return (
            self.effect in {"", taint.effect}
            and self.key in {"", taint.key}
            and (self.exists or self.value == taint.value)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """A request without alternatives, or one alternative of a request.

    Attributes:
        parent: the request whose alternative it is; empty where it has none.
        count: devices that are wanted; unused with `all_devices`.
        tolerations_json: as they stand in the claim, for the result.
    """

    name: str
    device_class: str
    parent: str = ""
    selectors: tuple[str, ...] = ()
    all_devices: bool = False
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, Decimal] = field(default_factory=dict)
    tolerations_json: tuple[Mapping[str, object], ...] = ()

    @property
    def full_name(self) -> str:
        """As results name it: with its parent, where it has one."""
        return f"{self.parent}/{self.name}" if self.parent else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class MainRequest:
    """A request of a claim.

    Attributes:
        choices: the alternatives, most wanted first; one where there are none.
        prioritized: the choices are alternatives (firstAvailable), even if there is one only.
    """

    name: str
    choices: tuple[DeviceRequest, ...]
    prioritized: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeConstraint:
    """All devices agree in an attribute, or no two do.

    Attributes:
        attribute: fully qualified.
        requests: names that it is about, main or with alternative; empty: all.
    """

    attribute: str
    distinct: bool
    requests: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConfig:
    """Opaque configuration, handed through; `requests` empty: about all."""

    requests: tuple[str, ...]
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingClaim:
    """A claim that has no allocation yet; `label` is namespace/name."""

    label: str
    requests: tuple[MainRequest, ...]
    constraints: tuple[AttributeConstraint, ...] = ()
    configs: tuple[DeviceConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedClass:
    """A DeviceClass."""

    name: str
    selectors: tuple[str, ...] = ()
    configs: tuple[DeviceConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What allocated claims hold, of all nodes.

    Attributes:
        whole: devices that cannot be given to anybody else.
        amounts: of shareable devices, the sum of all shares by capacity.
    """

    whole: frozenset[DeviceId] = frozenset()
    amounts: Mapping[DeviceId, Mapping[str, Decimal]] = field(default_factory=dict)


Matches = Callable[[str, Offer], bool]
"""Whether a selector expression selects a device; raises AllocationError where it cannot say."""
