"""Containers by their cgroups."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.adapters.container_cgroups import ContainerCgroups
from dra_driver.adapters.process_stat import start_time
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import ContainerMemory
from dra_driver.model.cuda import ProcessRef
from tests.fakes.proc import FakeProc

ID = "c" * 64
POD = "kubepods/burstable/pod11111111-2222-4333-8444-555555555555"
INIT = ProcessRef(pid=100, started=500)


class Host:
    """A host's /proc and cgroups; `v1` names the controllers that are of version 1."""

    def __init__(self, root: Path, *, v1: tuple[str, ...] = (), above: str = "") -> None:
        self.root = root
        self.proc = FakeProc(root / "proc")
        self.v1 = v1
        (root / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
        self.groups = [root / "sys/fs/cgroup" / name / POD / ID for name in v1 or ("",)]
        lines = [f"{n}:{name}:{above}/{POD}/{ID}" for n, name in enumerate(v1, start=1)]
        self.text = "\n".join([*lines, f"0::{above}/{POD}/{ID}"])
        for group in self.groups:
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text("100\n101\n")
        self.proc.add(101, started=600, cgroup=self.text)
        self.proc.add(100, started=500, cgroup=self.text)
        self.proc.add(7, started=1)
        self.containers = ContainerCgroups(root)

    def write(self, name: str, text: str, *, group: int = 0, up: int = 0) -> None:
        folder = self.groups[group]
        for _ in range(up):
            folder = folder.parent
        (folder / name).write_text(f"{text}\n")


@pytest.fixture(params=[(), ("freezer", "memory")], ids=["v2", "v1"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    return Host(tmp_path, v1=request.param)


def test_first_process_is_found_by_the_containers_id(host: Host) -> None:
    assert host.containers.find(ID) == INIT
    assert host.containers.find("d" * 64) is None


def test_processes_of_all_groups_below_are_listed_the_first_one_first(host: Host) -> None:
    below = host.groups[0] / "nested"
    below.mkdir()
    (below / "cgroup.procs").write_text("102\n")
    host.proc.add(102, started=550, cgroup=f"{host.text}/nested")

    found = host.containers.processes(INIT)

    assert [each.pid for each in found] == [100, 102, 101]
    assert host.containers.processes(ProcessRef(pid=100, started=499)) == ()


def test_group_is_found_when_paths_begin_beside_the_readers_namespace(tmp_path: Path) -> None:
    host = Host(tmp_path)
    beside = host.text.replace("/kubepods/burstable", "/../..")
    for pid, started in ((100, 500), (101, 600)):
        host.proc.add(pid, started=started, cgroup=beside)

    assert [each.pid for each in host.containers.processes(INIT)] == [100, 101]


def test_processes_are_refused_when_the_group_is_nowhere(host: Host) -> None:
    for group in host.groups:
        (group / "cgroup.procs").write_text("9\n")

    with pytest.raises(AdapterError, match="--host-root"):
        host.containers.processes(INIT)


def test_container_is_frozen_when_its_group_or_its_pods_is(host: Host) -> None:
    assert not host.containers.frozen(INIT)
    name, value = ("freezer.state", "FREEZING") if host.v1 else ("cgroup.freeze", "1")
    host.write(name, value)
    assert host.containers.frozen(INIT)
    host.write(name, "THAWED" if host.v1 else "0")
    host.write(name, value, up=1)
    assert host.containers.frozen(INIT)
    assert not host.containers.frozen(ProcessRef(pid=100, started=499))


def test_memory_is_what_the_tightest_limit_leaves(host: Host) -> None:
    assert host.containers.memory(INIT) == ContainerMemory(available_bytes=2048 << 10)
    limit, used = ("memory.max", "memory.current")
    if host.v1:
        limit, used = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    at = 1 if host.v1 else 0
    host.write(limit, "max" if not host.v1 else str(1 << 62), group=at)
    host.write(used, "5", group=at)
    assert host.containers.memory(INIT).left_bytes is None
    host.write(limit, "1000", group=at)
    host.write(limit, "700", group=at, up=1)
    host.write(used, "100", group=at, up=1)
    assert host.containers.memory(INIT).left_bytes == 600


def test_kill_ends_the_process_that_is_meant_and_no_other() -> None:
    containers = ContainerCgroups(Path("/"))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = start_time(Path("/proc"), child.pid)
        assert started is not None
        containers.kill((ProcessRef(pid=child.pid, started=started - 1),))
        assert child.poll() is None

        containers.kill((ProcessRef(pid=child.pid, started=started),))

        assert child.wait(60) == -9
        containers.kill((ProcessRef(pid=child.pid, started=started),))
