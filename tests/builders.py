"""Builders of the values that most tests need; each takes only what the test is about."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuFacts, GpuUuid, Inventory
from dra_driver.model.health import DeviceHealth, HealthStatus

DRIVER = "gpuslice.io"
NODE = "node-a"
BOOT = "11111111-1111-4111-8111-111111111111"


def uuid(number: int) -> GpuUuid:
    return GpuUuid(f"GPU-{number:08x}-0000-4000-8000-{number:012x}")


def claim_uid(number: int) -> str:
    return f"{number:08x}-0000-4000-9000-{number:012x}"


def ref(number: int = 1, *, name: str = "", namespace: str = "team-a") -> ClaimRef:
    return ClaimRef(namespace, name or f"claim-{number}", claim_uid(number))


def gpu(number: int = 0, **changes: Any) -> GpuFacts:
    """An H100-80GB; `changes` replace fields of GpuFacts."""
    facts: dict[str, Any] = {
        "uuid": uuid(number),
        "index": number,
        "minor": number,
        "product_name": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "memory_total_bytes": 81559 << 20,
        "memory_reserved_bytes": 638 << 20,
        "sm_count": 132,
        "compute_capability": (9, 0),
        "pci_bus_id": f"0000:{0x1A + number:02x}:00.0",
        "pcie_root": "pci0000:16",
        "numa_node": 0,
        "nvlink_domain": "n0",
    }
    return GpuFacts(**(facts | changes))


def inventory(*gpus: GpuFacts, **changes: Any) -> Inventory:
    """A simulated node whose GPUs are all healthy."""
    fields: dict[str, Any] = {
        "driver_version": "570.133.20",
        "cuda_version": "12.8",
        "gpus": gpus,
        "health": tuple(
            DeviceHealth(uuid=each.uuid, status=HealthStatus.HEALTHY)
            for each in sorted(gpus, key=lambda each: each.uuid)
        ),
        "simulated": True,
    }
    return Inventory(**(fields | changes))


def share_result(
    device: str, *, request: str = "gpu", share: int = 1, compute: int = 25, memory: str = "6Gi"
) -> dict[str, Any]:
    """One allocation result of a shareable device, as the API server spells it."""
    return {
        "request": request,
        "driver": DRIVER,
        "pool": NODE,
        "device": device,
        "shareID": f"{share:08x}-0000-4000-a000-{share:012x}",
        "consumedCapacity": {"compute": str(compute), "memory": memory, "shares": "1"},
    }


def claim_json(number: int = 1, **changes: Any) -> dict[str, Any]:
    """An allocated ResourceClaim; `changes`: results, requests, config, pods that it is for."""
    reference = ref(number)
    results = changes.get("results", [])
    requests = changes.get(
        "requests",
        [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": f"slice.{DRIVER}",
                    "allocationMode": "ExactCount",
                    "count": 1,
                    "capacity": {"requests": {"compute": "25", "memory": "6Gi"}},
                },
            }
        ],
    )
    devices: dict[str, Any] = {"results": results}
    if "config" in changes:
        devices["config"] = changes["config"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": reference.name,
            "namespace": reference.namespace,
            "uid": reference.uid,
            "resourceVersion": "1",
        },
        "spec": {"devices": {"requests": requests}},
        "status": {
            "allocation": {"devices": devices},
            "reservedFor": [
                {"resource": "pods", "name": each.name, "uid": each.uid}
                for each in changes.get("pods", ())
            ],
        },
    }


def bytes_of(mib: int) -> Decimal:
    return Decimal(mib << 20)
