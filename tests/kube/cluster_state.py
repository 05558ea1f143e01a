"""What is written down about a cluster, so that any process can go on with it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.kube.cell import Addresses
from tests.kube.daemons import ProcessId
from tests.kube.profiles import PROFILES, Profile, effective

_FILE = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """One cluster: ``version`` of the control plane and of the node, which an upgrade parts.

    ``owner`` is the process that the cluster ends with; none for one that stays until it is ended.
    ``number`` is that of its addresses, once it has some.
    """

    version: str
    node_version: str
    profile: str
    node_name: str
    owner: ProcessId | None
    number: int | None = None

    @property
    def control_profile(self) -> Profile:
        return effective(PROFILES[self.profile], self.version)

    @property
    def node_profile(self) -> Profile:
        return effective(PROFILES[self.profile], self.node_version)

    @property
    def addresses(self) -> Addresses:
        assert self.number is not None, "the cluster has no addresses yet"
        return Addresses(number=self.number)

    @property
    def orphaned(self) -> bool:
        """Whether the process that the cluster was to end with is gone."""
        return self.owner is not None and not self.owner.alive

    def save(self, folder: Path) -> None:
        new = folder / f"{_FILE}.new"
        new.write_text(json.dumps(asdict(self)))
        new.rename(folder / _FILE)

    @classmethod
    def load(cls, folder: Path) -> "ClusterState | None":
        """Read what is written in a folder; nothing where no cluster is."""
        try:
            values = json.loads((folder / _FILE).read_text())
        except FileNotFoundError:
            return None
        owner = values.pop("owner")
        return cls(**values, owner=ProcessId(**owner) if owner else None)
