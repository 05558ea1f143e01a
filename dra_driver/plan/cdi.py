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
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from dra_driver.errors import NotReady, Reason
from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits, Hook, Mount
from dra_driver.model.device import GpuFacts
from dra_driver.model.steps import WriteCdiSpec
from dra_driver.plan import naming

T = TypeVar("T")

GPU_UUID_ENV = "GPUSLICE_GPU_UUID"
COMPUTE_PERCENT_ENV = "GPUSLICE_COMPUTE_PERCENT"
MEMORY_MIB_ENV = "GPUSLICE_MEMORY_MIB"

_NO_LEGACY_INJECTION = "NVIDIA_VISIBLE_DEVICES=void"
"""Images ask for all GPUs by this variable; CDI's value wins and stops NVIDIA's legacy hook."""


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
    extra: Edits = field(default_factory=Edits)
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
    names = tuple(_device_name(claim_uid, entry) for entry in entries)
    requests = _requests_with_own_device(entries, names)
    devices: dict[str, Edits] = {}
    ids: list[tuple[str, ...]] = []
    for entry, name in zip(entries, names, strict=True):
        devices.setdefault(name, _gpu_edits(entry, driver_edits))
        of_request = tuple(each for each in entries if each.main_request == entry.main_request)
        if entry.main_request in requests:
            teller = f"{claim_uid}-request-{entry.main_request}"
            devices[teller] = Edits(env=_holdings(of_request))
            ids.append((f"{kind}={name}", f"{kind}={teller}"))
        else:
            devices[name] = _with_env(devices[name], _holdings(of_request))
            ids.append((f"{kind}={name}",))
    content = _spec_text(kind, _added(driver_edits.common, claim_edits or Edits()), devices)
    step = WriteCdiSpec(name=naming.spec_name(driver, claim_uid), content=content)
    return ClaimSpec(step=step, cdi_ids=tuple(ids))


def _device_name(claim_uid: str, entry: SpecEntry) -> str:
    # The UID first: it is never used again, so a runtime's stale cache cannot serve an old claim.
    share = f"-{entry.share_id}" if entry.share_id else ""
    return f"{claim_uid}-{entry.device}{share}"


def _requests_with_own_device(
    entries: tuple[SpecEntry, ...], names: tuple[str, ...]
) -> frozenset[str]:
    # Admin access may give one device to several requests, which then hold different sets.
    per_request = Counter(entry.main_request for entry in entries)
    per_name = Counter(names)
    return frozenset(
        entry.main_request
        for entry, name in zip(entries, names, strict=True)
        if per_request[entry.main_request] > 1 or per_name[name] > 1
    )


def _gpu_edits(entry: SpecEntry, driver_edits: DriverEdits) -> Edits:
    own = driver_edits.per_gpu.get(entry.gpu.uuid, Edits())
    if not own.device_nodes:
        raise NotReady(
            Reason.DEVICE_LOST,
            f"GPU {entry.gpu.uuid} (device {entry.device}) has no device node, so a container would"
            " start without it: check that the NVIDIA driver has created /dev/nvidia* on the node",
        )
    return _added(own, entry.extra)


def _added(first: Edits, second: Edits) -> Edits:
    return Edits(
        env=_merged_env(first.env, second.env),
        device_nodes=_unique((*first.device_nodes, *second.device_nodes)),
        mounts=_unique((*first.mounts, *second.mounts)),
        hooks=_unique((*first.hooks, *second.hooks)),
    )


def _holdings(entries: tuple[SpecEntry, ...]) -> tuple[str, ...]:
    uuids = f"{GPU_UUID_ENV}={_listed(entry.gpu.uuid for entry in entries)}"
    if all(entry.monitor for entry in entries):
        return (uuids,)
    compute = _listed(0 if entry.monitor else entry.compute_percent for entry in entries)
    memory = _listed(0 if entry.monitor else entry.memory_mib for entry in entries)
    return (uuids, f"{COMPUTE_PERCENT_ENV}={compute}", f"{MEMORY_MIB_ENV}={memory}")


def _listed(values: Iterable[object]) -> str:
    return ",".join(str(value) for value in values)


def _with_env(edits: Edits, env: tuple[str, ...]) -> Edits:
    return replace(edits, env=_merged_env(edits.env, env))


def _merged_env(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    replaced = {entry.partition("=")[0] for entry in second}
    return (*(entry for entry in first if entry.partition("=")[0] not in replaced), *second)


def _unique(items: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


def _spec_text(kind: str, common: Edits, devices: Mapping[str, Edits]) -> str:
    shared = _with_env(common, (_NO_LEGACY_INJECTION,))
    spec = {
        "cdiVersion": _lowest_version(kind, devices, (shared, *devices.values())),
        "kind": kind,
        "containerEdits": _edits_json(shared),
        "devices": [
            {"name": name, "containerEdits": _edits_json(edits)} for name, edits in devices.items()
        ],
    }
    return json.dumps(spec, sort_keys=True, separators=(",", ":")) + "\n"


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
