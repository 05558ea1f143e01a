"""What is tried, and with which kube-scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dra_driver.model.capability import ApiCapability
from dra_driver.plan.allocate_values import SchedulerRules
from tests.kube.build import KUBERNETES_VERSION
from tests.kube.profiles import DEFAULT, GATES, Profile

Json = dict[str, Any]

DRIVER = "gpuslice.io"
NEWEST_VERSION = "1.37.2"
_ON_BY_DEFAULT_FROM_MINOR = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A version of Kubernetes with what is switched on."""

    version: str
    profile: Profile

    def __str__(self) -> str:
        return f"{self.version}-{self.profile.name}"

    @property
    def minor(self) -> int:
        return int(self.version.split(".")[1])

    @property
    def sharing(self) -> bool:
        """Whether devices can be shared and tainted."""
        return self.profile == GATES or self.minor >= _ON_BY_DEFAULT_FROM_MINOR

    @property
    def capability(self) -> ApiCapability:
        return ApiCapability(
            major=1,
            minor=self.minor,
            git_version=f"v{self.version}",
            consumable=self.sharing,
            taints=self.sharing,
        )

    @property
    def rules(self) -> SchedulerRules:
        return SchedulerRules(minor=self.minor, consumable=self.sharing, taints=self.sharing)


TARGETS = (
    Target(version=KUBERNETES_VERSION, profile=DEFAULT),
    Target(version=KUBERNETES_VERSION, profile=GATES),
    Target(version=NEWEST_VERSION, profile=DEFAULT),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodCase:
    """A pod.

    Attributes:
        claims: specs of its claims (the value of `spec.devices`).
        after: pods of the same case, by position, that end before this one comes.
    """

    claims: tuple[Json, ...]
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A node with a pool of its own, and pods that come one after the other.

    Attributes:
        number: within its seed; names the node.
        published: the pool is one that this driver publishes.
        slices: specs of ResourceSlices, with `pool.generation`.
    """

    number: int
    published: bool
    slices: tuple[Json, ...]
    pods: tuple[PodCase, ...]

    @property
    def node(self) -> str:
        return node_name(self.number)


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def devices_of(slices: tuple[Json, ...]) -> Iterator[Json]:
    return (device for spec in slices for device in spec.get("devices", ()))
