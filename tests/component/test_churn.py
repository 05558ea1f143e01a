"""Many cycles: nothing grows, and a reader never sees half a file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from time import monotonic

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


def test_two_processes_never_give_one_gpu_to_two_claims(tmp_path: Path) -> None:
    held, pause = threading.Semaphore(1), threading.Event()

    def cycles(number: int) -> None:
        # Locks and journals of their own: nothing but the files connects the two.
        node = NodeFolder(tmp_path, gpus=1)
        for _ in range(8):
            node.state.prepare(ref(number), soon())
            assert held.acquire(blocking=False), "another claim holds the GPU"
            pause.wait(0.01)
            held.release()
            node.state.unprepare(ref(number), soon())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(cycles, (2, 4)))
    node = NodeFolder(tmp_path, gpus=1)
    assert node.state.records() == ()
    node.check()


def test_two_processes_work_on_the_same_claims(tmp_path: Path) -> None:
    nodes = NodeFolder(tmp_path), NodeFolder(tmp_path)

    def cycles(thread: int) -> None:
        dice = Random(thread)
        for _ in range(60):
            node, claim = dice.choice(nodes), ref(dice.randrange(1, 9))
            if dice.random() < 0.5:
                node.state.prepare(claim, soon())
            else:
                node.state.unprepare(claim, soon())

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(cycles, range(6)))
    for node in nodes:
        node.check()
    assert nodes[0].state.records() == nodes[1].state.records()


def test_readers_never_see_half_a_file_while_writers_are_killed(tmp_path: Path) -> None:
    dice = Random(1)
    for _ in range(6):
        command = [sys.executable, "-m", "tests.component.child", str(tmp_path), "churn", "1", "-1"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            read_files(tmp_path, dice.randrange(10, 60))
            child.kill()
    node = NodeFolder(tmp_path)
    assert node.state.recover(soon()) == ()
    node.check()
    assert node.leftovers() == []


def read_files(root: Path, wanted: int) -> None:
    """Parse what a runtime or another process would, until so many files were there to read."""
    seen = 0
    end_s = monotonic() + 60
    while seen < wanted:
        assert monotonic() < end_s, f"only {seen} of {wanted} files were there to read"
        for path in (*root.glob("cdi/*.json"), *root.glob("state/claims/*.json")):
            content = DurableFolder(path.parent, setting="").read(path.name)
            if content is not None:
                json.loads(content)
                seen += 1
