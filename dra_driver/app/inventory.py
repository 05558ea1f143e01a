"""The command `gpuslice inventory`: what a node has and what of it is offered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dra_driver.app.gpus import open_gpus
from dra_driver.app.hardware import open_hardware
from dra_driver.app.options import publish_options
from dra_driver.errors import AdapterError
from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuFacts, Inventory
from dra_driver.model.health import DeviceHealth, HealthStatus
from dra_driver.model.quantity import MIB
from dra_driver.model.share import ShareAbility
from dra_driver.plan.amounts import usable_memory_mib
from dra_driver.plan.slices import build_pool
from dra_driver.ports import ShareSupervisor
from dra_driver.settings import Settings

_SHARES = ApiCapability(major=1, minor=36, git_version="", consumable=True, taints=True)
"""An API server that keeps all: what is left out then is left out because of the GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRow:
    """One GPU; None where the board or the driver does not say."""

    facts: GpuFacts
    ability: ShareAbility
    health: DeviceHealth

    @property
    def memory_total_mib(self) -> int | None:
        total_bytes = self.facts.memory_total_bytes
        return None if total_bytes is None else total_bytes // MIB

    @property
    def memory_usable_mib(self) -> int | None:
        return usable_memory_mib(self.facts)

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.facts.index,
            "uuid": self.facts.uuid,
            "product": self.facts.product_name,
            "memoryTotalMiB": self.memory_total_mib,
            "memoryUsableMiB": self.memory_usable_mib,
            "smCount": self.facts.sm_count,
            "numaNode": self.facts.numa_node,
            "nvlinkDomain": self.facts.nvlink_domain,
            "tier": self.ability.tier,
            "tierReason": self.ability.reason,
            "health": self.health.status,
            "healthMessage": self.health.message,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class InventoryReport:
    """Rows by index; notes tell what is left out or offered otherwise, and why."""

    driver_version: str | None
    cuda_version: str | None
    simulated: bool
    gpus: tuple[GpuRow, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "driverVersion": self.driver_version,
            "cudaVersion": self.cuda_version,
            "simulated": self.simulated,
            "gpus": [gpu.to_json() for gpu in self.gpus],
            "notes": list(self.notes),
        }


def inventory_report(settings: Settings) -> InventoryReport:
    """Read the node's GPUs once.

    Raises:
        SettingsError: the file of `--simulate` is malformed or missing.
        DriverNotLoaded: there is no GPU driver.
        AdapterError: the GPUs cannot be listed.
    """
    with open_gpus(settings) as gpus, open_hardware(settings, gpus) as hardware:
        inventory = hardware.gpus.inventory()
        abilities = _abilities(hardware.sharing.supervisor, inventory)
    pool = build_pool(
        inventory,
        abilities,
        capability=_SHARES,
        options=publish_options(settings),
        in_use=frozenset(),
    )
    return InventoryReport(
        driver_version=inventory.driver_version,
        cuda_version=inventory.cuda_version,
        simulated=inventory.simulated,
        gpus=_rows(inventory, abilities),
        notes=pool.notes,
    )


def _abilities(supervisor: ShareSupervisor, inventory: Inventory) -> tuple[ShareAbility, ...]:
    try:
        return supervisor.abilities(inventory)
    except AdapterError as error:
        reason = f"unknown whether it can be shared: {error}"
        return tuple(ShareAbility(gpu=gpu.uuid, tier=None, reason=reason) for gpu in inventory.gpus)


def _rows(inventory: Inventory, abilities: tuple[ShareAbility, ...]) -> tuple[GpuRow, ...]:
    health = {each.uuid: each for each in inventory.health}
    return tuple(
        GpuRow(
            facts=gpu,
            ability=ability,
            health=health.get(gpu.uuid, _unknown(gpu)),
        )
        for gpu, ability in zip(inventory.gpus, abilities, strict=True)
    )


def _unknown(gpu: GpuFacts) -> DeviceHealth:
    return DeviceHealth(uuid=gpu.uuid, status=HealthStatus.UNKNOWN, message="nobody has looked yet")
