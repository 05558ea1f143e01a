"""The objects that restore a checkpoint: a claim for its GPUs and a Pod of its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dra_api.config.decode import API_VERSION
from dra_driver.model.manifest import Manifest, ManifestGpu
from dra_driver.model.share import CheckpointPolicy

_CLAIM = "gpus"
_ALWAYS = (
    "give the Pod the volumes that the checkpointed one had, at the same paths; the environment of"
    " its processes stays what it was"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreWish:
    """What is to be restored, and how.

    Attributes:
        name: of the Pod and of its claim.
        container: of the Pod; the name that the checkpointed one had.
        image: that restores the checkpoint.
        node: to whose runtime the image was brought; None: it can be pulled.
        operation_id: of the checkpoint; empty: it is not known.
        manifest: of that operation; None: the container had no GPU of this driver, as far as known.
        driver: its name.
    """

    name: str
    namespace: str
    container: str
    image: str
    node: str | None = None
    operation_id: str = ""
    manifest: Manifest | None = None
    driver: str


def restore_objects(wish: RestoreWish) -> tuple[dict[str, Any], ...]:
    """Give the claim, where there are GPUs to claim, and the Pod."""
    if wish.manifest is None or not wish.manifest.gpus:
        return (_pod(wish, claimed=False),)
    return (_claim(wish, wish.manifest), _pod(wish, claimed=True))


def restore_notes(wish: RestoreWish) -> tuple[str, ...]:
    """What has to be known about them."""
    notes = [_ALWAYS]
    if wish.manifest is None:
        notes.append(
            "the Pod claims no GPU: if the container had one, give --operation its checkpoint"
            " operation (gpuslice operations --all lists them)"
        )
    elif not wish.manifest.gpus:
        notes.append("the checkpoint holds no GPU state")
    elif wish.manifest.host_only:
        notes.append("what was on the GPU is not part of this checkpoint")
    elif wish.manifest.driver_owned:
        notes.append(
            "the driver took the processes off their GPUs, so any GPU of the same model will do,"
            " with NVIDIA's driver 580 or later"
        )
    else:
        notes.append(
            "CRIU brings GPU state back onto the very same GPUs, so the claim names them; the Pod"
            " stays Pending while they are in use"
        )
    if wish.node is None:
        notes.append("the Pod has to run on a node like the one of the checkpoint")
    return tuple(notes)


def _claim(wish: RestoreWish, manifest: Manifest) -> dict[str, Any]:
    anywhere = manifest.driver_owned or manifest.host_only
    requests = [
        {"name": f"gpu-{number}", "exactly": _device(wish, gpu, anywhere=anywhere)}
        for number, gpu in enumerate(manifest.gpus)
    ]
    spec: dict[str, Any] = {"requests": requests}
    if all(gpu.sharing is None for gpu in manifest.gpus):
        spec["config"] = [_config(wish)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": wish.name, "namespace": wish.namespace},
        "spec": {"devices": spec},
    }


def _config(wish: RestoreWish) -> dict[str, Any]:
    parameters = {
        "apiVersion": API_VERSION,
        "kind": "GpuConfig",
        "restoreFrom": wish.operation_id,
        # As the one that is restored: it can be checkpointed again.
        "checkpoint": CheckpointPolicy.BEST_EFFORT.value,
    }
    return {"opaque": {"driver": wish.driver, "parameters": parameters}}


def _device(wish: RestoreWish, gpu: ManifestGpu, *, anywhere: bool) -> dict[str, Any]:
    kind = "gpu" if gpu.sharing is None else "slice"
    device: dict[str, Any] = {"deviceClassName": f"{kind}.{wish.driver}"}
    if gpu.sharing is not None:
        device["capacity"] = {"requests": {"memory": f"{gpu.held_memory_mib}Mi"}}
    if not anywhere:
        expression = f'device.attributes["{wish.driver}"].uuid == "{gpu.uuid}"'
        device["selectors"] = [{"cel": {"expression": expression}}]
    return device


def _pod(wish: RestoreWish, *, claimed: bool) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": wish.container,
        "image": wish.image,
        "imagePullPolicy": "IfNotPresent" if wish.node is None else "Never",
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if claimed:
        container["resources"] = {"claims": [{"name": _CLAIM}]}
        spec["resourceClaims"] = [{"name": _CLAIM, "resourceClaimName": wish.name}]
    if wish.node is not None:
        spec["affinity"] = _on_node(wish.node)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": wish.name, "namespace": wish.namespace},
        "spec": spec,
    }


def _on_node(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
