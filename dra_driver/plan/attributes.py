"""Attributes: what selectors can see of a device.

A selector that reads a missing attribute fails the scheduling of its pod, not just of this device.
So every device carries all of our own names: where a board or its driver does not say, text is
"unknown", a number is 0 and a version is 0.0.0. Kubernetes' standard names are left out where they
are unknown, as `matchAttribute` must never pair two devices for what neither knows.
"""

from __future__ import annotations

import re

from dra_driver.model.device import GpuFacts, Inventory, Tier
from dra_driver.model.pool import AttributeValue, Version
from dra_driver.model.share import ShareAbility
from dra_driver.plan.naming import gpu_device

Attributes = tuple[tuple[str, AttributeValue], ...]

TYPE_GPU = "gpu"
TYPE_SLOT = "slot"
TYPE_MONITOR = "monitor"
TYPE_PAD = "pad"
SHARED = "Shared"
EXCLUSIVE = "Exclusive"

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_TEXT_MAX_BYTES = 64
_UNKNOWN = "unknown"
_UNKNOWN_VERSION = Version("0.0.0")
_NUMBERS = re.compile(r"^v?([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?(?![0-9])")
_PCI_ADDRESS = re.compile(r"^(?:0{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$")


def gpu_attributes(
    gpu: GpuFacts, ability: ShareAbility | None, *, inventory: Inventory, checkpointable: bool
) -> Attributes:
    """All attributes of a GPU's devices but `type` and `sharing`; sorted by name.

    Args:
        gpu: the board.
        ability: of this GPU; None is as good as a tier of None.
        inventory: that the GPU is of, for the driver's versions.
        checkpointable: containers on it can be checkpointed.
    """
    capability = gpu.compute_capability
    own: dict[str, AttributeValue] = {
        "architecture": _text(gpu.architecture),
        "brand": _text(gpu.brand),
        "burstAllowed": ability is not None and ability.burst_allowed,
        "checkpointable": checkpointable,
        "cudaComputeCapability": (
            Version(f"{capability[0]}.{capability[1]}.0") if capability else _UNKNOWN_VERSION
        ),
        "cudaDriverVersion": _version(inventory.cuda_version),
        "driverVersion": _version(inventory.driver_version),
        "index": gpu.index,
        "mpsMultiUser": ability is not None and ability.mps_multi_user,
        # A GPU without a link is alone in its domain: two of them must not match each other.
        "nvlinkDomain": _identity(gpu.nvlink_domain or "") or _uuid(gpu),
        "productName": _text(gpu.product_name),
        "smCount": gpu.sm_count or 0,
        "tier": str(ability.tier if ability is not None and ability.tier else Tier.NONE),
        "uuid": _uuid(gpu),
    }
    return tuple(sorted((own | _standard(gpu)).items()))


def typed(attributes: Attributes, *, kind: str, sharing: str) -> Attributes:
    """Add what tells devices of one GPU apart; only what may be had whole is checkpointable."""
    own = dict(attributes) | {"type": kind, "sharing": sharing}
    if kind != TYPE_GPU and "checkpointable" in own:
        own["checkpointable"] = False
    return tuple(sorted(own.items()))


def pad_attributes(name: str, others: tuple[Attributes, ...]) -> Attributes:
    """Attributes of a pad: every name that one of `others` has, and no value that a claim wants."""
    pad: dict[str, AttributeValue] = {}
    for attribute, value in (item for attributes in others for item in attributes):
        match value:
            case bool():
                pad[attribute] = False
            case int():
                pad[attribute] = -1
            case str():
                pad[attribute] = name
            case Version():
                pad[attribute] = _UNKNOWN_VERSION
    return typed(
        tuple((key, value) for key, value in pad.items() if key not in {"type", "sharing"}),
        kind=TYPE_PAD,
        sharing=EXCLUSIVE,
    )


def semver(text: str) -> str | None:
    """Spell a version as strict semver 2.0.0: three numbers, no leading zeros.

    "580.65.06" → "580.65.6", "13.0" → "13.0.0"; what follows the third number is left out. None
    where the text does not start with a number.
    """
    match = _NUMBERS.match(text.strip())
    if match is None:
        return None
    return ".".join(str(int(number or 0)) for number in match.groups())


def cut_text(text: str) -> str:
    """Cut text to the 64 bytes that an attribute may have, never inside a character."""
    return text.encode(errors="replace")[:_TEXT_MAX_BYTES].decode(errors="ignore")


def _standard(gpu: GpuFacts) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {}
    if root := _identity(gpu.pcie_root or ""):
        found[PCIE_ROOT] = root
    if address := _PCI_ADDRESS.match((gpu.pci_bus_id or "").lower()):
        found[PCI_BUS_ID] = address.group(1)
    if gpu.numa_node is not None and gpu.numa_node >= 0:
        found[NUMA_NODE] = gpu.numa_node
    return found


def _uuid(gpu: GpuFacts) -> str:
    return _identity(gpu.uuid) or gpu_device(gpu.uuid)


def _identity(text: str) -> str:
    # Two identities must not become one by cutting, so what does not fit is no identity.
    return text if cut_text(text) == text else ""


def _text(text: str | None) -> str:
    return cut_text(text.strip()) if text and text.strip() else _UNKNOWN


def _version(text: str | None) -> Version:
    return Version(semver(text or "") or _UNKNOWN_VERSION.text)
