"""The CDI spec that NVIDIA's Container Toolkit generates for a node, reduced to what we hand on.

Source: NVIDIA/nvidia-container-toolkit, `nvidia-ctk cdi generate`. It knows every file of every
driver release, so where it is installed its word is better than ours. Left out of it:

- MPS: a tenant must reach the daemon of its own GPU, never a node-wide one, and needs no tools;
- numbers of device nodes: the runtime reads them from the host when a container starts, and the
  spec may be older than the last load of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from dra_driver.model.cdi import DeviceNode, Edits, Hook, Mount

FILE_NAMES = ("nvidia.yaml", "nvidia.json", "nvidia.com-gpu.yaml", "nvidia.com-gpu.json")
"""As nvidia-cdi-refresh, people who follow NVIDIA's guide, and the GPU operator name it."""

_KIND = "nvidia.com/gpu"
_MPS_FOLDER = PurePosixPath("/tmp/nvidia-mps")  # noqa: S108 - NVIDIA's default, not a file of ours
_MPS_PREFIX = "nvidia-cuda-mps-"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitSpec:
    """What a generated spec says.

    Attributes:
        devices: by the toolkit's name: a GPU's UUID or its index, as text.
    """

    common: Edits
    devices: Mapping[str, Edits]


def parse_toolkit_spec(path: Path, text: str) -> ToolkitSpec | None:
    """Read a spec; None where it is not of NVIDIA's GPUs.

    Raises:
        ValueError: it is malformed; the text says how.
    """
    try:
        body = json.loads(text) if path.suffix == ".json" else yaml.load(text, Loader=_Loader)  # noqa: S506
        if body["kind"] != _KIND:
            return None
        return ToolkitSpec(
            common=_edits(body.get("containerEdits") or {}),
            devices={
                str(device["name"]): _edits(device.get("containerEdits") or {})
                for device in body["devices"]
            },
        )
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is not YAML: {error}") from error
    except KeyError as error:
        raise ValueError(f"field {error} is missing") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"it is not a CDI spec: {error}") from error


def _edits(body: Mapping[str, Any]) -> Edits:
    mounts = (_mount(mount) for mount in body.get("mounts") or ())
    return Edits(
        env=tuple(body.get("env") or ()),
        device_nodes=tuple(_node(node) for node in body.get("deviceNodes") or ()),
        mounts=tuple(mount for mount in mounts if not _is_mps(mount)),
        hooks=tuple(_hook(hook) for hook in body.get("hooks") or ()),
    )


def _is_mps(mount: Mount) -> bool:
    return any(
        _MPS_FOLDER in (path, *path.parents) or path.name.startswith(_MPS_PREFIX)
        for path in map(PurePosixPath, (mount.container_path, mount.host_path))
    )


def _node(body: Mapping[str, Any]) -> DeviceNode:
    path, host_path = body["path"], body.get("hostPath")
    return DeviceNode(
        path=path,
        host_path=host_path if host_path != path else None,
        permissions=body.get("permissions"),
    )


def _mount(body: Mapping[str, Any]) -> Mount:
    return Mount(
        host_path=body["hostPath"],
        container_path=body["containerPath"],
        options=tuple(body.get("options") or ()),
        type=body.get("type"),
    )


def _hook(body: Mapping[str, Any]) -> Hook:
    return Hook(
        name=body["hookName"],
        path=body["path"],
        args=tuple(body.get("args") or ()),
        env=tuple(body.get("env") or ()),
    )
