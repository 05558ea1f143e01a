"""A crash at every moment of prepare and unprepare, and whatever may come after it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests import records
from tests.builders import ref
from tests.component.node_folder import NodeFolder, kind_of, soon

MANY = 10_000


def run_child(root: Path, action: str, number: int, last: int = MANY) -> int | None:
    """Moments that were passed, or None where the child was killed."""
    arguments = [str(root), action, str(number), str(last)]
    command = [sys.executable, "-m", "tests.component.child", *arguments]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode == -9:
        return None
    assert child.returncode == 0, child.stderr
    return int(child.stdout)


def crashed(tmp_path: Path, before: Path, action: str, number: int) -> Iterator[Path]:
    """A node's folder for every moment at which a process died."""
    for last in count():
        root = tmp_path / f"at-{last}"
        shutil.copytree(before, root)
        if run_child(root, action, number, last) is not None:
            assert last >= 4, "too few moments were found to mean anything"
            return
        yield root


def restart(root: Path) -> NodeFolder:
    node = NodeFolder(root)
    assert node.state.recover(soon(), gpus=records.record(1).gpus) == ()
    node.check()
    assert node.leftovers() == []
    return node


def prepare(node: NodeFolder, number: int) -> None:
    expected = records.record(number, kind=kind_of(number), on=number - 1)
    assert node.state.prepare(ref(number), soon()) == expected.devices
    assert expected in node.state.records()
    node.check()


def unprepare(node: NodeFolder, number: int) -> None:
    node.state.unprepare(ref(number), soon())
    assert ref(number) not in [record.claim for record in node.state.records()]
    node.check()


def restart_and_prepare(root: Path, number: int) -> None:
    node = restart(root)
    prepare(node, number)
    prepare(node, number)
    unprepare(node, number)


def restart_and_unprepare(root: Path, number: int) -> None:
    node = restart(root)
    unprepare(node, number)
    unprepare(node, number)


def prepare_by_another_process(root: Path, number: int) -> None:
    node = NodeFolder(root)
    prepare(node, number)
    unprepare(node, number)


def unprepare_by_another_process(root: Path, number: int) -> None:
    unprepare(NodeFolder(root), number)


AFTER: tuple[Callable[[Path, int], None], ...] = (
    restart_and_prepare,
    restart_and_unprepare,
    prepare_by_another_process,
    unprepare_by_another_process,
)


@pytest.mark.parametrize("number", [1, 2], ids=kind_of)
@pytest.mark.parametrize("action", ["prepare", "unprepare"])
def test_a_crash_at_any_moment_leaves_a_node_that_goes_on(
    tmp_path: Path, action: str, number: int
) -> None:
    before = tmp_path / "before"
    neighbour = 3
    node = NodeFolder(before)
    node.state.prepare(ref(neighbour), soon())
    if action == "unprepare":
        node.state.prepare(ref(number), soon())
    for root in crashed(tmp_path, before, action, number):
        for follow_up in AFTER:
            copy = root.with_name(f"{root.name}-{follow_up.__name__}")
            shutil.copytree(root, copy)
            follow_up(copy, number)
            left = [record.claim for record in NodeFolder(copy).state.records()]
            assert left == [ref(neighbour)]
