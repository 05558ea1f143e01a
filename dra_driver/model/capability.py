"""What an API server was found to accept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCapability:
    """Result of the dry-run probe of one API server version.

    Attributes:
        major, minor: of the server.
        consumable: allowMultipleAllocations and requestPolicy are kept.
        taints: device taints are kept.
        git_version: as the server spells it; a change asks for a new probe.
    """

    major: int
    minor: int
    git_version: str
    consumable: bool
    taints: bool

    @property
    def needs_pads(self) -> bool:
        """Whether the scheduler of this version re-checks capacity on the wrong device (1.34)."""
        return self.consumable and (self.major, self.minor) == (1, 34)
