"""Commands of a person against a cluster of one node, through the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_line import Ended, Run, run
from tests.fakes.archives import write_checkpoint
from tests.fakes.people_cluster import PeopleCluster
from tests.fakes.people_node import PeopleNode

__all__ = ["Site", "run", "site"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cluster, its node, an archive on it, and a person's folder."""

    cluster: PeopleCluster
    node: PeopleNode
    archive: Path
    folder: Path
    _run: Run

    def ask(self, *arguments: str) -> Ended:
        """Run a command with the person's kubeconfig."""
        kubeconfig = self.cluster.kubeconfig(self.folder)
        return self._run(*arguments, "--kubeconfig", str(kubeconfig))

    def files(self) -> set[str]:
        return {each.name for each in self.folder.iterdir()} - {"kubeconfig"}


@pytest.fixture
def site(tmp_path: Path, run: Run) -> Iterator[Site]:
    root, folder = tmp_path / "node", tmp_path / "person"
    (root / "checkpoints").mkdir(parents=True)
    folder.mkdir()
    node = PeopleNode(root)
    archive = write_checkpoint(node.checkpoints, payload=300_000)
    answer = f'{{"items": ["{archive}"]}}'
    cluster = PeopleCluster(command=node.command, answer=(200, answer))
    with cluster.serving():
        yield Site(cluster=cluster, node=node, archive=archive, folder=folder, _run=run)
