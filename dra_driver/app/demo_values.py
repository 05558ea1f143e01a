"""What the demo's parts tell each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from dra_driver.errors import GpusliceError
from dra_driver.model.quantity import MIB, parse_quantity
from dra_driver.plan.allocate_parse import allocation_results

Json = Mapping[str, Any]

DRIVER = "gpuslice.io"
NODE = "demo-node"
NAMESPACE = "default"


class DemoError(GpusliceError):
    """A step did not do what the demo is there to show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOutcome:
    """How far a pod came.

    Attributes:
        phase: as a pod's status has it.
        reason, message: of its Event where it does not run; empty where it does.
        claims: its ResourceClaims, as they are now.
    """

    name: str
    phase: str
    reason: str = ""
    message: str = ""
    claims: tuple[Json, ...] = ()

    @property
    def running(self) -> bool:
        return self.phase == "Running"

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of its devices, in the order in which they were allocated."""
        return tuple(str(each["device"]) for claim in self.claims for each in _results(claim))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage:
    """What claims hold of one GPU.

    Attributes:
        index: as NVML counts.
        tenants: how many results of claims are on it.
    """

    index: int
    device: str
    uuid: str
    memory_mib: int
    memory_total_mib: int
    compute_percent: int
    tenants: int

    @property
    def memory_share(self) -> float:
        return self.memory_mib / self.memory_total_mib

    @property
    def compute_share(self) -> float:
        return self.compute_percent / 100

    def to_json(self) -> dict[str, Any]:
        return {
            "gpu": self.index,
            "device": self.device,
            "memoryMiB": self.memory_mib,
            "memoryTotalMiB": self.memory_total_mib,
            "computePercent": self.compute_percent,
            "tenants": self.tenants,
        }


def gpu_usage(slices: Iterable[Json], claims: Iterable[Json]) -> tuple[GpuUsage, ...]:
    """Add up what the API server has: allocated claims, over the GPUs of published slices."""
    held: dict[str, list[Json]] = {}
    for result in (each for claim in claims for each in _results(claim)):
        held.setdefault(str(result["device"]), []).append(result)
    found = []
    for device in (each for one in slices for each in one["spec"].get("devices", ())):
        attributes = device["attributes"]
        if attributes["type"]["string"] != "gpu":
            continue
        results = held.get(device["name"], [])
        found.append(
            GpuUsage(
                index=attributes["index"]["int"],
                device=device["name"],
                uuid=attributes["uuid"]["string"],
                memory_mib=int(_sum(results, "memory") / MIB),
                memory_total_mib=int(parse_quantity(device["capacity"]["memory"]["value"]) / MIB),
                compute_percent=int(_sum(results, "compute")),
                tenants=len(results),
            )
        )
    return tuple(sorted(found, key=lambda each: each.index))


def _results(claim: Json) -> tuple[Json, ...]:
    return allocation_results(claim)


def _sum(results: Iterable[Json], name: str) -> Decimal:
    amounts = (result.get("consumedCapacity", {}).get(name, "0") for result in results)
    return sum(map(parse_quantity, amounts), Decimal(0))
