"""The command `gpuslice explain`: what preparing a claim would do, without doing it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import yaml

from dra_driver.app.gpus import open_gpus
from dra_driver.app.hardware import open_hardware
from dra_driver.app.options import prepare_options
from dra_driver.errors import FatalError
from dra_driver.model.claim import ClaimRef
from dra_driver.model.device import GpuFacts, Inventory
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import GpuUse, PreparedDevice, Use
from dra_driver.model.share import GpuShare
from dra_driver.model.steps import EnsureShare, MarkClaim, SetTimeSlice, Step, WriteCdiSpec
from dra_driver.settings import Settings
from dra_driver.state.current import Current
from dra_driver.state.planner import Planner

_SHARED_USES = frozenset({Use.SHARED, Use.SLOT})
_NO_UID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """One prepared device.

    Attributes:
        use: what it holds of its GPU.
        gpu: None where the GPU went away meanwhile.
        share: how it is enforced; None where the GPU is not shared.
        note: why it is prepared as it is.
    """

    device: PreparedDevice
    use: GpuUse
    gpu: GpuFacts | None
    share: GpuShare | None
    note: str

    def to_json(self) -> dict[str, Any]:
        return {
            "requests": list(self.device.requests),
            "device": self.device.device,
            "gpu": self.use.gpu,
            "index": self.gpu.index if self.gpu else None,
            "product": self.gpu.product_name if self.gpu else None,
            "use": self.use.use,
            "computePercent": self.use.compute_percent,
            "memoryMiB": self.use.memory_mib,
            "sharing": self.share.sharing if self.share else None,
            "qos": self.share.qos if self.share else None,
            "cdiDevices": list(self.device.cdi_ids),
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Devices in the order of the allocation, steps in the order in which they would run."""

    claim: ClaimRef
    node: str
    devices: tuple[DeviceRow, ...]
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]

    def cdi_specs(self) -> dict[str, Any]:
        """By file name."""
        return {
            f"{step.name}.json": json.loads(step.content)
            for step in self.steps
            if isinstance(step, WriteCdiSpec)
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "claim": {
                "namespace": self.claim.namespace,
                "name": self.claim.name,
                "uid": self.claim.uid,
            },
            "node": self.node,
            "devices": [device.to_json() for device in self.devices],
            "steps": [sentence(step) for step in self.steps],
            "cdiSpecs": self.cdi_specs(),
            "warnings": list(self.warnings),
        }


def explain_claim(settings: Settings, file: str) -> Explanation:
    """Plan the claim in `file` ("-": standard input) for the GPUs of this node.

    Without a node name the claim's own allocation tells it.

    Raises:
        FatalError: the file holds no ResourceClaim.
        ClaimError: the claim would be refused.
        DriverNotLoaded: there is no GPU driver.
        AdapterError: the GPUs cannot be listed.
    """
    claim = _read(file)
    ref = ClaimRef(
        str(claim["metadata"].get("namespace") or "default"),
        str(claim["metadata"].get("name") or "unnamed"),
        str(claim["metadata"]["uid"]),
    )
    node = settings.node_name or _pool(claim, settings.driver_name)
    settings_there = settings.model_copy(update={"node_name": node})
    with (
        open_gpus(settings_there) as gpus,
        open_hardware(settings_there, gpus) as hardware,
    ):
        inventory = hardware.gpus.inventory()
        planner = Planner(
            options=prepare_options(settings, node=node, boot_id=hardware.gpus.boot_id()),
            inventory=Current[Inventory | None](inventory),
            supervisor=hardware.sharing.supervisor,
            driver_files=hardware.driver_files,
        )
        plan = planner.plan(claim, ref)
    return Explanation(
        claim=ref,
        node=node,
        devices=_rows(plan, inventory),
        steps=plan.record.steps,
        warnings=plan.warnings,
    )


def sentence(step: Step) -> str:
    """What a step does."""
    match step:
        case EnsureShare(share=share):
            return (
                f"enforce share {share.id} of {share.gpu}: {share.compute_percent} % compute and "
                f"{share.memory_mib} MiB of memory by {share.sharing}, {share.qos}"
            )
        case SetTimeSlice(gpu=gpu, interval=interval):
            return f"set the time slice of {gpu} to {interval}"
        case MarkClaim():
            return "make the file that marks the claim's containers"
        case WriteCdiSpec(name=name):
            return f"write the CDI spec {name}.json"
        case _ as never:
            assert_never(never)


def _rows(plan: PreparePlan, inventory: Inventory) -> tuple[DeviceRow, ...]:
    record = plan.record
    ensured = [step.share for step in record.steps if isinstance(step, EnsureShare)]
    shares = {gpu: iter([each for each in ensured if each.gpu == gpu]) for gpu in record.gpus}
    return tuple(
        DeviceRow(
            device=device,
            use=use,
            gpu=inventory.gpu(use.gpu),
            # Steps stand in the order of the allocation too.
            share=next(shares[use.gpu]) if use.use in _SHARED_USES else None,
            note=note,
        )
        for device, use, note in zip(record.devices, record.uses, plan.notes, strict=True)
    )


def _read(file: str) -> dict[str, Any]:
    """A claim that has at least a UID, which one that was written by hand lacks."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise FatalError(f"--claim {file} cannot be read: {error}") from error
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:
        # The last three are PyYAML's for values that do not fit their tag, as a date of month 99.
        raise FatalError(f"--claim {file} is not YAML: {' '.join(str(error).split())}") from error
    kind = content.get("kind") if isinstance(content, Mapping) else None
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    if kind != "ResourceClaim" or not isinstance(metadata, Mapping):
        raise FatalError(
            f"--claim {file} holds no ResourceClaim (kind {kind!r}): give one object with its "
            "metadata, spec and status.allocation"
        )
    return {**content, "metadata": {"uid": _NO_UID, **metadata}}


def _pool(claim: Mapping[str, Any], driver: str) -> str:
    """The pool of the first result of this driver; empty where there is none."""
    found: Any = claim
    for key in ("status", "allocation", "devices", "results"):
        found = found.get(key) if isinstance(found, Mapping) else None
    for result in found if isinstance(found, list) else ():
        if isinstance(result, Mapping) and result.get("driver") == driver:
            return str(result.get("pool") or "")
    return ""
