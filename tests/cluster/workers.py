"""How tests are spread over workers: those on one cluster go to the same, and keep their order."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.kube.cluster_fixtures import end_orphans

_GROUPS = ("checkpoints", "gates", "mps", "newest", "default")
"""What clusters are called in the names of fixtures; those whose tests take longest first."""

_FILE = pytest.StashKey[Path]()
_INPUT = "gpuslice-groups"


class ByCluster(LoadScopeScheduling):  # type: ignore[misc] # xdist has no types
    """Gives each group to the next worker that has time; others test by test, at the end."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._groups: dict[str, str] = {}
        config.option.loadscopereorder = False

    def schedule(self) -> None:
        """Begin, now that the workers have said what the groups are."""
        self._groups = json.loads(_file(self.config).read_text())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return self._groups.get(nodeid, nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByCluster:
    return ByCluster(config, log)


def pytest_configure_node(node: WorkerController) -> None:
    """Tell a worker where to write groups: the session itself knows tests by name only."""
    node.workerinput[_INPUT] = str(_file(node.config))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End what workers left behind that had no time to do it."""
    if _FILE in config.stash:
        shutil.rmtree(config.stash[_FILE].parent)
        end_orphans()


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Bring the tests of each group together, and those last that change the node for the others."""
    items.sort(key=_place)
    told = getattr(config, "workerinput", {}).get(_INPUT)
    if told is not None:
        new = Path(f"{told}.{os.getpid()}")
        groups = {item.nodeid: group for item in items if (group := _group(item)) is not None}
        new.write_text(json.dumps(groups))
        new.rename(told)


def _place(item: pytest.Item) -> tuple[int, bool]:
    group = _group(item)
    rank = len(_GROUPS) if group is None else _GROUPS.index(group)
    return rank, "hook" in getattr(item, "fixturenames", ())


def _group(item: pytest.Item) -> str | None:
    names = set(getattr(item, "fixturenames", ()))
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        # Of fixtures that a parameter chooses.
        names.update(map(str, item.callspec.params.values()))
    found = (each for each in _GROUPS if names & {f"cluster_{each}", f"driver_{each}"})
    return next(found, None)


def _file(config: pytest.Config) -> Path:
    if _FILE not in config.stash:
        config.stash[_FILE] = Path(tempfile.mkdtemp(prefix="gpuslice-"), "groups.json")
    return config.stash[_FILE]
