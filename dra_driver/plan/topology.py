"""Which GPUs reach each other without crossing PCIe."""

from __future__ import annotations

from collections.abc import Mapping

from dra_driver.model.device import GpuUuid


def nvlink_domains(
    buses: Mapping[GpuUuid, str], links: Mapping[GpuUuid, frozenset[str]]
) -> dict[GpuUuid, str]:
    """Name the NVLink domain of each GPU that has an active link.

    Two GPUs are of one domain when a path of links joins them, directly or through NVSwitches.
    Domains are numbered "n0", "n1", … in the order of the smallest UUID in each, so the names
    follow the boards, not the enumeration. A GPU without links has no domain.

    Args:
        buses: PCI address of each GPU, which is how the other end of a link names it.
        links: PCI addresses of the other ends of each GPU's active links, of GPUs or switches.
    """
    groups = _Groups()
    for uuid, ends in links.items():
        for end in ends:
            groups.join(buses.get(uuid, uuid), end)
    names: dict[str, str] = {}
    domains: dict[GpuUuid, str] = {}
    for uuid in sorted(uuid for uuid, ends in links.items() if ends):
        root = groups.root(buses.get(uuid, uuid))
        domains[uuid] = names.setdefault(root, f"n{len(names)}")
    return domains


class _Groups:
    """Disjoint sets of addresses."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def root(self, node: str) -> str:
        while (parent := self._parent.setdefault(node, node)) != node:
            node = parent
        return node

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self.root(one), self.root(other)))
        self._parent[second] = first
