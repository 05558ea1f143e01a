"""The manifest of a checkpoint: how it is made, and its stored form.

Within a version fields may be added, and readers ignore those they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.manifest import Manifest, ManifestGpu
from dra_driver.model.record import GpuUse, Record, Use
from dra_driver.model.share import Sharing
from dra_driver.plan.spec_view import view_specs

VERSION = "gpuslice.io/checkpoint/v1"


def build_manifest(
    records: Iterable[Record],
    inventory: Inventory,
    *,
    node: str,
    gpu_bytes: int = 0,
    driver_owned: bool = False,
    host_only: bool = False,
) -> Manifest:
    """Describe what the claims of a container give to it; see Manifest for the arguments."""
    held = tuple(records)
    view = view_specs(held)
    uses = (use for record in held for use in record.uses if use.use is not Use.MONITOR)
    return Manifest(
        node=node,
        driver_version=inventory.driver_version,
        cuda_version=inventory.cuda_version,
        library=view.library,
        gpus=tuple(sorted((_gpu(use, inventory) for use in uses), key=lambda gpu: gpu.uuid)),
        gpu_bytes=gpu_bytes,
        container_paths=view.mounts,
        device_paths=view.devices,
        driver_owned=driver_owned,
        host_only=host_only,
        simulated=inventory.simulated,
    )


def sharing_of(use: GpuUse) -> Sharing | None:
    """How a use shares its GPU; None: it has it alone."""
    if use.use in (Use.EXCLUSIVE, Use.MONITOR):
        return None
    return Sharing(use.setting.partition("=")[0] or Sharing.TIME_SLICING)


def manifest_json(manifest: Manifest) -> dict[str, Any]:
    return {
        "version": VERSION,
        "node": manifest.node,
        "driverVersion": manifest.driver_version,
        "cudaVersion": manifest.cuda_version,
        "library": manifest.library,
        "gpus": [_gpu_json(gpu) for gpu in manifest.gpus],
        "gpuBytes": manifest.gpu_bytes,
        "containerPaths": list(manifest.container_paths),
        "devicePaths": list(manifest.device_paths),
        "driverOwned": manifest.driver_owned,
        "hostOnly": manifest.host_only,
        "simulated": manifest.simulated,
    }


def manifest_text(manifest: Manifest) -> str:
    """Spell a manifest; equal ones are equal text."""
    return json.dumps(manifest_json(manifest), sort_keys=True, separators=(",", ":"))


def read_manifest(body: Mapping[str, Any]) -> Manifest:
    """Read what `manifest_json` of this or an older release gave.

    Raises:
        ValueError, KeyError, TypeError: it is none, or of another version.
    """
    if body["version"] != VERSION:
        raise ValueError(f"version {body['version']!r} of a manifest is not known")
    return Manifest(
        node=str(body["node"]),
        driver_version=_text_or_none(body["driverVersion"]),
        cuda_version=_text_or_none(body.get("cudaVersion")),
        library=str(body.get("library", "")),
        gpus=tuple(map(_read_gpu, body["gpus"])),
        gpu_bytes=int(body.get("gpuBytes", 0)),
        container_paths=tuple(map(str, body.get("containerPaths", ()))),
        device_paths=tuple(map(str, body.get("devicePaths", ()))),
        driver_owned=bool(body.get("driverOwned", False)),
        host_only=bool(body.get("hostOnly", False)),
        simulated=bool(body.get("simulated", False)),
    )


def _gpu(use: GpuUse, inventory: Inventory) -> ManifestGpu:
    facts = inventory.gpu(use.gpu)
    return ManifestGpu(
        uuid=use.gpu,
        product_name=facts.product_name if facts is not None else "",
        compute_capability=facts.compute_capability if facts is not None else None,
        memory_bytes=facts.memory_total_bytes if facts is not None else None,
        held_memory_mib=use.memory_mib,
        sharing=sharing_of(use),
    )


def _gpu_json(gpu: ManifestGpu) -> dict[str, Any]:
    capability = gpu.compute_capability
    return {
        "uuid": gpu.uuid,
        "productName": gpu.product_name,
        "computeCapability": list(capability) if capability is not None else None,
        "memoryBytes": gpu.memory_bytes,
        "heldMemoryMib": gpu.held_memory_mib,
        "sharing": gpu.sharing.value if gpu.sharing is not None else None,
    }


def _read_gpu(body: Mapping[str, Any]) -> ManifestGpu:
    capability, memory = body.get("computeCapability"), body.get("memoryBytes")
    return ManifestGpu(
        uuid=GpuUuid(str(body["uuid"])),
        product_name=str(body["productName"]),
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        memory_bytes=int(memory) if memory is not None else None,
        held_memory_mib=int(body.get("heldMemoryMib", 0)),
        sharing=Sharing(body["sharing"]) if body.get("sharing") else None,
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
