"""Random pools: what this driver publishes for random nodes, and what others may."""

from __future__ import annotations

import json
from random import Random

from dra_driver.model.device import GpuFacts, GpuUuid, Inventory, Tier
from dra_driver.model.health import DeviceHealth, HealthStatus
from dra_driver.model.share import ShareAbility
from dra_driver.plan.layouts import parse_layouts
from dra_driver.plan.naming import gpu_device
from dra_driver.plan.slice_json import slice_specs
from dra_driver.plan.slices import PublishMode, PublishOptions, build_pool
from tests import builders
from tests.scheduler.values import DRIVER, Json, Target

_MIB = 1 << 20
_BOARDS: tuple[Json, ...] = (
    {},
    {},
    {},
    {},
    {"product_name": "NVIDIA A100-SXM4-40GB", "memory_total_bytes": 40960 * _MIB},
    {"product_name": "Tesla T4", "memory_total_bytes": 15360 * _MIB, "nvlink_domain": None},
    {"product_name": "NVIDIA L4", "compute_capability": (8, 9), "numa_node": None},
    {"product_name": "", "memory_total_bytes": None, "compute_capability": None},
    {"memory_total_bytes": 500 * _MIB, "memory_reserved_bytes": 20 * _MIB, "brand": None},
    {"memory_total_bytes": 81559 * _MIB + 12345, "memory_reserved_bytes": 7},
)
_LAYOUTS = ("whole", "4x25", "10x10", "2x50", "2x25+5x10", "4x25,0=whole", "1x60", "2x50,1=10x10")
_COUNTS = (1, 2, 2, 3, 4, 4, 8)
_SECOND_POOL = 0.4
_UNORDERED_MINOR = 34
"""Up to here the scheduler visits pools in an order of its own at each attempt."""


def published_pool(random: Random, target: Target, *, node: str) -> tuple[Json, ...]:
    """Give the specs of what the driver publishes for a random node."""
    gpus = tuple(_gpu(random, number) for number in range(random.choice(_COUNTS)))
    inventory = Inventory(
        driver_version=random.choice(("570.133.20", "580.65.06", None)),
        cuda_version=random.choice(("12.8", "13.0", None)),
        gpus=gpus,
        health=tuple(_health(random, gpu) for gpu in gpus),
        simulated=True,
    )
    pool = build_pool(
        inventory,
        tuple(_ability(random, gpu) for gpu in gpus if random.random() < 0.95),
        capability=target.capability,
        options=PublishOptions(
            driver=DRIVER,
            node=node,
            mode=random.choice((PublishMode.AUTO, PublishMode.AUTO, PublishMode.STATIC)),
            layouts=parse_layouts(random.choice(_LAYOUTS)),
        ),
        in_use=frozenset(gpu_device(gpu.uuid) for gpu in gpus if random.random() < 0.3),
    )
    specs: list[Json] = json.loads(json.dumps(slice_specs(pool)))
    for spec in specs:
        spec["pool"]["generation"] = 1
    return tuple(specs)


def other_pool(random: Random, target: Target, *, node: str) -> tuple[Json, ...]:
    """Give the specs of what another driver might publish: no pads, all policies, flaws."""
    devices = [_device(random, number, target) for number in range(random.randint(1, 5))]
    cut = random.choice((len(devices), len(devices), random.randint(0, len(devices))))
    parts = [part for part in (devices[:cut], devices[cut:]) if part]
    specs = [_spec(part, node=node, count=len(parts)) for part in parts]
    flaw = random.random()
    if flaw < 0.05:
        for spec in specs:
            spec["pool"]["resourceSliceCount"] += 1
    elif flaw < 0.1:
        # A device of the same name in another slice makes the pool invalid.
        specs.append(_spec([devices[0]], node=node, count=len(parts) + 1))
        for spec in specs:
            spec["pool"]["resourceSliceCount"] = len(parts) + 1
    elif flaw < 0.15:
        old = _spec([_device(random, 9, target)], node=node, count=1)
        old["pool"]["generation"] = 1
        specs.append(old)
    elif flaw < _SECOND_POOL and target.minor > _UNORDERED_MINOR:
        further = _spec([_device(random, number, target) for number in (0, 1)], node=node, count=1)
        further["pool"]["name"] = random.choice((f"{node}-b", f"a-{node}"))
        specs.append(further)
    return tuple(specs)


def _gpu(random: Random, number: int) -> GpuFacts:
    board = random.choice(_BOARDS)
    places = {
        "numa_node": random.choice((0, 1)),
        "pcie_root": random.choice(("pci0000:16", "pci0000:97", None)),
        "nvlink_domain": random.choice(("n0", "n0", "n1", None)),
        "mig_enabled": random.random() < 0.04,
    }
    # The same UUID on two nodes is a pool of its own on each.
    return builders.gpu(number, **(places | board))


def _health(random: Random, gpu: GpuFacts) -> DeviceHealth:
    sick = random.random() < 0.1
    return DeviceHealth(
        uuid=gpu.uuid,
        status=HealthStatus.UNHEALTHY if sick else HealthStatus.HEALTHY,
        cause=random.choice(("xid-79", "lost")) if sick else "",
    )


def _ability(random: Random, gpu: GpuFacts) -> ShareAbility:
    return ShareAbility(
        gpu=GpuUuid(gpu.uuid),
        tier=random.choice((*Tier, Tier.STANDARD, Tier.STANDARD, None)),
        burst_allowed=random.random() < 0.7,
        mps_multi_user=random.random() < 0.5,
    )


def _spec(devices: list[Json], *, node: str, count: int) -> Json:
    pool = {"name": node, "generation": 2, "resourceSliceCount": count}
    return {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}


def _device(random: Random, number: int, target: Target) -> Json:
    body: Json = {
        "name": f"dev-{number}",
        "attributes": {
            "type": {"string": random.choice((*("gpu",) * 6, "monitor"))},
            "sharing": {"string": random.choice(("Shared", "Shared", "Exclusive"))},
            "productName": {"string": random.choice(("red", "blue"))},
            "index": {"int": number},
            "uuid": {"string": f"U-{number // 2}"},
            "resource.kubernetes.io/numaNode": {"int": random.randint(0, 1)},
        },
        "capacity": {"memory": {"value": "16Gi"}, "compute": {"value": "100"}},
    }
    if random.random() < 0.2:
        del body["attributes"]["productName"]
    if random.random() < 0.15:
        del body["capacity"]["compute"]
    if target.sharing and random.random() < 0.7:
        _share(random, body)
    if target.sharing and random.random() < 0.2:
        body["taints"] = [_taint(random, target)]
    return body


def _share(random: Random, body: Json) -> None:
    """Make a device shareable; its policies are what API servers accept, and no more."""
    body["allowMultipleAllocations"] = True
    memory = random.choice(
        (
            None,
            {"default": "16Gi", "validRange": {"min": "1Gi", "max": "16Gi", "step": "1Gi"}},
            {"default": "1Gi", "validRange": {"min": "1Gi"}},
            {"default": "2Gi", "validValues": ["1Gi", "2Gi", "5Gi", "8Gi"]},
            {"default": "3Gi", "validRange": {"min": "1Gi", "max": "9Gi", "step": "2Gi"}},
        )
    )
    compute = random.choice(
        (
            None,
            {"default": "1", "validRange": {"min": "1", "max": "100", "step": "1"}},
            {"default": "10", "validRange": {"min": "10", "step": "15"}},
            {"default": "20", "validValues": ["20", "33", "50"]},
            {"default": "0", "validRange": {"min": "0"}},
            {"default": "500m", "validRange": {"min": "500m", "step": "250m"}},
            {"default": "2500m", "validRange": {"min": "500m", "max": "30500m", "step": "1500m"}},
            {"default": "500m", "validValues": ["500m", "2", "33.3"]},
        )
    )
    for name, policy in (("memory", memory), ("compute", compute)):
        if policy and name in body["capacity"]:
            body["capacity"][name]["requestPolicy"] = policy


def _taint(random: Random, target: Target) -> Json:
    effects = ("NoSchedule", "NoExecute", *(("None",) if target.minor > 34 else ()))
    return {
        "key": random.choice((f"{DRIVER}/unhealthy", f"{DRIVER}/busy")),
        "value": random.choice(("lost", "")),
        "effect": random.choice(effects),
    }
