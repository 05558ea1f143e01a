"""The CDI spec of one claim: minimal, and the lowest version that its fields need.

Source: cncf-tags/container-device-interface, SPEC.md and its minimum-version rules. Runtimes refuse
a spec with an unknown field, with empty edits, or with a version below what its fields need; an
older runtime refuses a newer version, whatever the fields.

What all containers with a GPU of this driver need stands once, at spec level: a runtime applies it
once if any device of the spec is used. A variable set by two devices of one container would take
the later value, so what a request holds is said by exactly one CDI device per request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from dra_driver.errors import NotReady, Reason
from dra_driver.model.cdi import NO_EDITS, DeviceNode, DriverEdits, Edits, Hook, Mount
from dra_driver.model.device import GpuFacts
from dra_driver.model.steps import WriteCdiSpec
from dra_driver.plan import naming

T = TypeVar("T")

GPU_UUID_ENV = "GPUSLICE_GPU_UUID"
COMPUTE_PERCENT_ENV = "GPUSLICE_COMPUTE_PERCENT"
MEMORY_MIB_ENV = "GPUSLICE_MEMORY_MIB"

_NO_LEGACY_INJECTION = "NVIDIA_VISIBLE_DEVICES=void"
"""Images ask for all GPUs by this variable; CDI's value wins and stops NVIDIA's legacy hook."""

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecEntry:
    """One allocated device of the claim.

    Attributes:
        request: "main", or "main/sub".
        device: the published device's name.
        compute_percent, memory_mib: what the claim holds of `gpu`; not said of a monitor.
        extra: what the device adds beyond the GPU's own nodes.
        monitor: it may look at the GPU and holds nothing of it.
    """

    request: str
    device: str
    share_id: str | None
    gpu: GpuFacts
    compute_percent: int
    memory_mib: int
    extra: Edits = NO_EDITS
    monitor: bool = False

    @property
    def main_request(self) -> str:
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimSpec:
    """A claim's spec and how to refer to it.

    Attributes:
        cdi_ids: for each entry, in its order: fully qualified, the entry's own device first, then
            the one that says what its request holds, where that is a device of its own.
    """

    step: WriteCdiSpec
    cdi_ids: tuple[tuple[str, ...], ...]


def claim_spec(
    *,
    driver: str,
    claim_uid: str,
    entries: tuple[SpecEntry, ...],
    driver_edits: DriverEdits,
    claim_edits: Edits | None = None,
) -> ClaimSpec:
    """Describe `entries` of a claim to container runtimes; all get `claim_edits`.

    Raises:
        NotReady: a GPU has no device node, so a container would start without it.
    """
    kind = naming.cdi_kind(driver)
    names = [_device_name(claim_uid, entry) for entry in entries]
    by_request: dict[str, list[SpecEntry]] = {}
    for entry in entries:
        by_request.setdefault(entry.main_request, []).append(entry)
    devices: dict[str, Edits] = {}
    ids: list[tuple[str, ...]] = []
    for entry, name in zip(entries, names, strict=True):
        of_request = by_request[entry.main_request]
        # Admin access may give one device to several requests, which then hold different sets.
        if len(of_request) > 1 or names.count(name) > 1:
            teller = f"{claim_uid}-request-{entry.main_request}"
            devices.setdefault(name, _gpu_edits(entry, driver_edits))
            devices[teller] = Edits(env=_holdings(of_request))
            ids.append((f"{kind}={name}", f"{kind}={teller}"))
        else:
            devices[name] = _gpu_edits(entry, driver_edits, env=_holdings(of_request))
            ids.append((f"{kind}={name}",))
    common = _merged(driver_edits.common, claim_edits or NO_EDITS, env=(_NO_LEGACY_INJECTION,))
    content = _spec_text(kind, common, devices)
    step = WriteCdiSpec(name=naming.spec_name(driver, claim_uid), content=content)
    return ClaimSpec(step=step, cdi_ids=tuple(ids))


def _device_name(claim_uid: str, entry: SpecEntry) -> str:
    # The UID first: it is never used again, so a runtime's stale cache cannot serve an old claim.
    share = f"-{entry.share_id}" if entry.share_id else ""
    return f"{claim_uid}-{entry.device}{share}"


def _gpu_edits(entry: SpecEntry, driver_edits: DriverEdits, *, env: tuple[str, ...] = ()) -> Edits:
    own = driver_edits.per_gpu.get(entry.gpu.uuid, NO_EDITS)
    if not own.device_nodes:
        raise NotReady(
            Reason.DEVICE_LOST,
            f"GPU {entry.gpu.uuid} (device {entry.device}) has no device node, so a container would"
            " start without it: check that the NVIDIA driver has created /dev/nvidia* on the node",
        )
    return _merged(own, entry.extra, env=env)


def _merged(first: Edits, second: Edits, *, env: tuple[str, ...]) -> Edits:
    return Edits(
        env=_merged_env(_merged_env(first.env, second.env), env),
        device_nodes=_unique(first.device_nodes + second.device_nodes),
        mounts=_unique(first.mounts + second.mounts),
        hooks=_unique(first.hooks + second.hooks),
    )


def _holdings(entries: Sequence[SpecEntry]) -> tuple[str, ...]:
    uuids = f"{GPU_UUID_ENV}={_listed(entry.gpu.uuid for entry in entries)}"
    if all(entry.monitor for entry in entries):
        return (uuids,)
    compute = _listed(0 if entry.monitor else entry.compute_percent for entry in entries)
    memory = _listed(0 if entry.monitor else entry.memory_mib for entry in entries)
    return (uuids, f"{COMPUTE_PERCENT_ENV}={compute}", f"{MEMORY_MIB_ENV}={memory}")


def _listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


def _merged_env(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    if not (first and second):
        return first or second
    replaced = {entry.partition("=")[0] for entry in second}
    return (*(entry for entry in first if entry.partition("=")[0] not in replaced), *second)


def _unique(items: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items)) if len(items) > 1 else items


def _spec_text(kind: str, common: Edits, devices: Mapping[str, Edits]) -> str:
    spec = {
        "cdiVersion": _lowest_version(kind, devices, (common, *devices.values())),
        "kind": kind,
        "containerEdits": _edits_json(common),
        "devices": [
            {"name": name, "containerEdits": _edits_json(edits)} for name, edits in devices.items()
        ],
    }
    return _canonical(spec) + "\n"


def _lowest_version(kind: str, names: Iterable[str], edits: tuple[Edits, ...]) -> str:
    if "." in kind.partition("/")[2]:
        return "0.6.0"
    host_path = any(node.host_path for each in edits for node in each.device_nodes)
    if host_path or any(not name[0].isalpha() for name in names):
        return "0.5.0"
    if any(mount.type for each in edits for mount in each.mounts):
        return "0.4.0"
    return "0.3.0"


def _edits_json(edits: Edits) -> dict[str, Any]:
    lists = {
        "env": list(edits.env),
        "deviceNodes": [_node_json(node) for node in edits.device_nodes],
        "mounts": [_mount_json(mount) for mount in edits.mounts],
        "hooks": [_hook_json(hook) for hook in edits.hooks],
    }
    return {key: items for key, items in lists.items() if items}


def _node_json(node: DeviceNode) -> dict[str, Any]:
    fields = {
        "path": node.path,
        "hostPath": node.host_path,
        "type": node.type,
        "major": node.major,
        "minor": node.minor,
        "permissions": node.permissions,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _mount_json(mount: Mount) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": list(mount.options),
        "type": mount.type,
    }
    return {key: value for key, value in fields.items() if value}


def _hook_json(hook: Hook) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "hookName": hook.name,
        "path": hook.path,
        "args": list(hook.args),
        "env": list(hook.env),
    }
    return {key: value for key, value in fields.items() if value}
