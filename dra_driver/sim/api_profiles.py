"""API server versions, as far as this driver can tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CONSUMABLE = "DRAConsumableCapacity"
TAINTS = "DRADeviceTaints"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiProfile:
    """One API server version with its feature gates.

    Attributes:
        gates: those that are on, of the ones whose fields would be dropped otherwise.
    """

    minor: int
    patch: int
    gates: frozenset[str] = frozenset()

    @property
    def git_version(self) -> str:
        return f"v1.{self.minor}.{self.patch}"

    def version(self) -> dict[str, Any]:
        """The body of /version."""
        return {
            "major": "1",
            "minor": str(self.minor),
            "gitVersion": self.git_version,
            "platform": "linux/simulated",
        }


V1_34 = ApiProfile(minor=34, patch=4)
V1_34_GATES = ApiProfile(minor=34, patch=4, gates=frozenset({CONSUMABLE, TAINTS}))
V1_37 = ApiProfile(minor=37, patch=2, gates=frozenset({CONSUMABLE, TAINTS}))
