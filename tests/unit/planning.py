"""Claims, abilities and plans for the tests of planning."""

from __future__ import annotations

from typing import Any

from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits
from dra_driver.model.claim import Claim
from dra_driver.model.device import GpuUuid, Inventory, Tier
from dra_driver.model.plan import PreparePlan
from dra_driver.model.share import GpuShare, ShareAbility
from dra_driver.model.steps import EnsureShare
from dra_driver.plan.claims import parse_claim
from dra_driver.plan.naming import gpu_device
from dra_driver.plan.prepare import PrepareOptions, plan_prepare
from tests.builders import BOOT, DRIVER, NODE, claim_json, gpu, inventory, ref, share_result, uuid

CONFIG = "config.gpuslice.io/v1alpha1"
OPTIONS = PrepareOptions(driver=DRIVER, node=NODE, boot_id=BOOT)
TWO_GPUS = inventory(gpu(0), gpu(1))
USABLE_MIB = 80041
"""Of `builders.gpu`: 81559 less 638 reserved, 64 for an MPS server and 1 % as a margin."""


def device(number: int = 0) -> str:
    return gpu_device(uuid(number))


def parameters(kind: str = "SliceConfig", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": CONFIG, "kind": kind, **fields}


def config(
    values: dict[str, Any], *requests: str, source: str = "FromClaim", driver: str = DRIVER
) -> dict[str, Any]:
    entry: dict[str, Any] = {"source": source, "opaque": {"driver": driver, "parameters": values}}
    return entry | ({"requests": list(requests)} if requests else {})


def request(name: str = "gpu", **amounts: str) -> dict[str, Any]:
    """One request of a claim's spec; without amounts it names none."""
    exactly: dict[str, Any] = {"deviceClassName": f"slice.{DRIVER}", "count": 1}
    if amounts:
        exactly["capacity"] = {"requests": amounts}
    return {"name": name, "exactly": exactly}


def whole_result(name: str = "gpu", number: int = 0, **changes: Any) -> dict[str, Any]:
    """A GPU from a device that is not shareable."""
    result = {"request": name, "driver": DRIVER, "pool": NODE, "device": device(number)}
    return result | changes


def ability(number: int = 0, **changes: Any) -> ShareAbility:
    fields: dict[str, Any] = {"gpu": uuid(number), "tier": Tier.STANDARD, "mps_multi_user": True}
    return ShareAbility(**(fields | changes))


def edits(node: Inventory) -> DriverEdits:
    return DriverEdits(
        per_gpu={
            each.uuid: Edits(device_nodes=(DeviceNode(path=f"/dev/nvidia{each.minor}"),))
            for each in node.gpus
        }
    )


def parsed(obj: dict[str, Any], number: int = 1) -> Claim:
    return parse_claim(obj, ref(number), driver=DRIVER, node=NODE)


def plan(
    obj: dict[str, Any],
    *,
    number: int = 1,
    options: PrepareOptions = OPTIONS,
    node: Inventory = TWO_GPUS,
    abilities: tuple[ShareAbility, ...] | None = None,
) -> PreparePlan:
    return plan_prepare(
        parsed(obj, number),
        options=options,
        inventory=node,
        abilities=(ability(0), ability(1)) if abilities is None else abilities,
        driver_edits=edits(node),
    )


def share_claim(
    *,
    compute: str | None = "25",
    memory: str | None = "6Gi",
    configs: list[dict[str, Any]] | None = None,
    number: int = 1,
    on_gpu: int = 0,
    usable: str = f"{USABLE_MIB}Mi",
) -> dict[str, Any]:
    """A claim for one share; an amount of None is not asked for, so its default is consumed."""
    amounts = {"compute": compute, "memory": memory}
    asked = {name: value for name, value in amounts.items() if value is not None}
    result = share_result(
        device(on_gpu), share=number, compute=int(compute or 1), memory=memory or usable
    )
    return claim_json(number, results=[result], requests=[request(**asked)], config=configs or [])


def shares(made: PreparePlan) -> tuple[GpuShare, ...]:
    return tuple(step.share for step in made.record.steps if isinstance(step, EnsureShare))


def only_share(made: PreparePlan) -> GpuShare:
    (share,) = shares(made)
    return share


def slot(percent: int, slot_number: int = 0, gpu_uuid: GpuUuid | None = None) -> str:
    return f"{gpu_device(gpu_uuid or uuid(0))}-slot-{percent}-{slot_number}"
