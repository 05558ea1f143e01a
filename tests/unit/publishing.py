"""What tests of publishing share."""

from __future__ import annotations

from typing import Any

from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuFacts, GpuUuid, Inventory, Tier
from dra_driver.model.health import DeviceHealth, HealthStatus
from dra_driver.model.pool import Device, Pool
from dra_driver.model.share import ShareAbility
from dra_driver.plan.layouts import parse_layouts
from dra_driver.plan.naming import gpu_device, monitor_device
from dra_driver.plan.slices import PublishMode, PublishOptions, build_pool
from tests import builders


def capability(minor: int, *, consumable: bool = True, taints: bool = True) -> ApiCapability:
    return ApiCapability(
        major=1, minor=minor, git_version=f"v1.{minor}.0", consumable=consumable, taints=taints
    )


DEFAULT_34 = capability(34, consumable=False, taints=False)
GATES_34 = capability(34)
DEFAULT_37 = capability(37)


def abilities(inventory: Inventory, **changes: Any) -> tuple[ShareAbility, ...]:
    fields: dict[str, Any] = {"tier": Tier.STANDARD} | changes
    return tuple(ShareAbility(gpu=gpu.uuid, **fields) for gpu in inventory.gpus)


def options(mode: PublishMode = PublishMode.AUTO, layout: str = "whole") -> PublishOptions:
    return PublishOptions(
        driver=builders.DRIVER, node=builders.NODE, mode=mode, layouts=parse_layouts(layout)
    )


def pool_of(
    inventory: Inventory,
    server: ApiCapability = DEFAULT_37,
    *,
    publish: PublishOptions | None = None,
    able: tuple[ShareAbility, ...] | None = None,
    in_use: frozenset[str] = frozenset(),
) -> Pool:
    return build_pool(
        inventory,
        abilities(inventory) if able is None else able,
        capability=server,
        options=publish or options(),
        in_use=in_use,
    )


def sick(inventory: Inventory, uuid: GpuUuid, *, cause: str = "xid-79") -> Inventory:
    """The same inventory with one unhealthy GPU."""
    entry = DeviceHealth(uuid=uuid, status=HealthStatus.UNHEALTHY, cause=cause)
    others = tuple(each for each in inventory.health if each.uuid != uuid)
    return Inventory(
        driver_version=inventory.driver_version,
        cuda_version=inventory.cuda_version,
        gpus=inventory.gpus,
        unreadable=inventory.unreadable,
        health=tuple(sorted((*others, entry), key=lambda each: each.uuid)),
    )


def names(pool: Pool) -> list[str]:
    return [device.name for device in pool.devices]


def kinds(pool: Pool) -> list[Any]:
    return [dict(device.attributes)["type"] for device in pool.devices]


def device(pool: Pool, gpu: GpuFacts) -> Device:
    return next(each for each in pool.devices if each.name == gpu_device(gpu.uuid))


def monitor(pool: Pool, gpu: GpuFacts) -> Device:
    return next(each for each in pool.devices if each.name == monitor_device(gpu.uuid))
