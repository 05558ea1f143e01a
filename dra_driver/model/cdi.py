"""Container edits in the terms of the Container Device Interface.

Source: cncf-tags/container-device-interface, SPEC.md. Host paths are paths on the host, never those
of the plugin's own container.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dra_driver.model.device import GpuUuid


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNode:
    """A device node in the container.

    Attributes:
        path: in the container.
        host_path: on the host where it differs from `path`.
        type, major, minor: None lets the runtime read them from the host's node.
    """

    path: str
    host_path: str | None = None
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    permissions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "bind")
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """What a CDI device adds to a container; order is kept, it decides which setting wins."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()


NO_EDITS = Edits()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEdits:
    """What every container with a GPU needs, and what each GPU adds.

    Attributes:
        common: libraries, programs and control device nodes of the GPU driver.
        per_gpu: by UUID: the GPU's own nodes.
    """

    common: Edits = NO_EDITS
    per_gpu: Mapping[GpuUuid, Edits] = field(default_factory=dict)
