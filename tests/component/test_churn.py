"""Many cycles: nothing grows, and a reader never sees half a file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import psutil

from dra_driver.adapters.durable import DurableFolder
from tests.builders import ref
from tests.component.node_folder import NodeFolder, soon
from tests.waiting import descriptors

CYCLES = 2000


def test_cycles_leave_files_descriptors_threads_and_memory_as_they_were(tmp_path: Path) -> None:
    node = NodeFolder(tmp_path)

    def cycle(number: int) -> None:
        node.state.prepare(ref(number), soon())
        node.state.unprepare(ref(number), soon())

    def cycles(number: int) -> None:
        for _ in range(CYCLES // 8):
            cycle(number)

    for number in range(1, 9):
        cycle(number)
    process = psutil.Process()
    before = descriptors(), threading.active_count(), sorted(tmp_path.rglob("*"))
    memory_bytes = process.memory_info().rss
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cycles, range(1, 9)))
    node.check()
    assert node.leftovers() == []
    assert (descriptors(), threading.active_count(), sorted(tmp_path.rglob("*"))) == before
    assert process.memory_info().rss - memory_bytes < 8 << 20


def test_readers_never_see_half_a_file_while_writers_are_killed(tmp_path: Path) -> None:
    dice = Random(1)
    read = 0
    for _ in range(6):
        command = [sys.executable, "-m", "tests.component.child", str(tmp_path), "churn", "1", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            for _ in range(dice.randrange(30, 200)):
                read += read_all(tmp_path)
            child.kill()
    assert read > 100
    node = NodeFolder(tmp_path)
    assert node.state.recover(soon()) == ()
    node.check()
    assert node.leftovers() == []


def read_all(root: Path) -> int:
    """Parse every file that a runtime or another process would."""
    count = 0
    for path in (*root.glob("cdi/*.json"), *root.glob("state/claims/*.json")):
        content = DurableFolder(path.parent, setting="").read(path.name)
        if content is not None:
            json.loads(content)
            count += 1
    return count
