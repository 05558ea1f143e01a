"""What the kernel says about the node and its PCI devices."""

from __future__ import annotations

import re
from pathlib import Path

from dra_driver.errors import AdapterError

_BUS_ID = re.compile(r"^([0-9a-f]{1,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])$")
_ROOT = re.compile(r"^pci[0-9a-f]{4,}:[0-9a-f]{2}$")
_GPUS = "proc/driver/nvidia/gpus"


def normal_bus_id(text: str) -> str | None:
    """Spell a PCI address as sysfs does: "00000000:1A:00.0" is "0000:1a:00.0".

    A domain above ffff, which some platforms have, keeps its digits. None: not a PCI address.
    """
    match = _BUS_ID.match(text.strip().lower())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus}:{device}.{function}"


class Sysfs:
    """Reads /sys and /proc of the host; a fact that is not there is None, never an error.

    Args:
        host_root: where the host's / is seen from this process.
    """

    def __init__(self, host_root: Path) -> None:
        self._host_root = host_root

    def pcie_root(self, bus_id: str) -> str | None:
        """Root complex above a PCI device, "pci0000:16".

        Source: k8s.io/dynamic-resource-allocation/deviceattribute reads it from the same link.
        """
        try:
            target = self._device(bus_id).readlink()
        except OSError:
            return None
        return next((part for part in target.parts if _ROOT.match(part)), None)

    def numa_node(self, bus_id: str) -> int | None:
        """NUMA node of a PCI device; None also where the firmware gives none (-1)."""
        try:
            node = int((self._device(bus_id) / "numa_node").read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def nvidia_gpus(self) -> tuple[str, ...]:
        """PCI addresses of the GPUs that NVIDIA's kernel module drives, sorted."""
        try:
            names = [path.name for path in (self._host_root / _GPUS).iterdir()]
        except OSError:
            return ()
        return tuple(sorted(filter(None, map(normal_bus_id, names))))

    def minor(self, bus_id: str) -> int | None:
        """The N of /dev/nvidiaN, as NVIDIA's kernel module lists it."""
        path = self._host_root / _GPUS / bus_id / "information"
        try:
            match = re.search(r"^Device Minor:\s*(\d+)\s*$", path.read_text(), re.MULTILINE)
        except (OSError, ValueError):
            return None
        return int(match.group(1)) if match else None

    def boot_id(self) -> str:
        """Identity of this boot.

        Raises:
            AdapterError: it cannot be read.
        """
        path = self._host_root / "proc/sys/kernel/random/boot_id"
        try:
            return path.read_text().strip()
        except OSError as error:
            raise AdapterError(
                f"cannot read {path}: {error.strerror}; check --host-root"
            ) from error

    def _device(self, bus_id: str) -> Path:
        return self._host_root / "sys/bus/pci/devices" / bus_id
