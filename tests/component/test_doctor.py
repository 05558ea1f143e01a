"""The doctor on folders of a node, through the command line."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.app.doctor_folders import filesystem
from tests.command_line import Run, run

__all__ = ["run"]

RUNTIME = "container runtime"
CDI = "CDI folder"


class Node:
    """Folders of a healthy node with the sockets of its kubelet, and a look at them."""

    def __init__(self, root: Path, run: Run) -> None:
        self.root = root
        self._run = run
        for folder in ("registry", "plugins", "cdi", "state", "run", "sys/fs/cgroup/kubepods"):
            (root / folder).mkdir(parents=True)
        self.write("sys/fs/cgroup/cgroup.controllers", "cpu memory")
        self.write("etc/containerd/config.toml", "version = 3\n" + self.folders("cdi"))
        self.write("proc/net/unix", "Num RefCount\n")
        self.flags = {
            "--simulate": "mixed",
            "--kubelet-registrar-directory-path": str(root / "registry"),
            "--kubelet-plugins-directory-path": str(root / "plugins"),
            "--cdi-root": str(root / "cdi"),
            "--state-dir": str(root / "state"),
            "--run-dir": str(root / "run"),
            "--host-root": str(root),
            "--pod-resources-socket": str(root / "pods.sock"),
        }

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def folders(self, name: str) -> str:
        return f"[plugins.cri]\ncdi_spec_dirs = ['{self.root / name}']\n"

    def look(self) -> tuple[int, dict[str, list[dict[str, Any]]]]:
        """Exit status, and findings by subject."""
        ended = self._run(
            "doctor", "--json", *(each for pair in self.flags.items() for each in pair)
        )
        found: dict[str, list[dict[str, Any]]] = {}
        for each in json.loads(ended.out)["findings"]:
            found.setdefault(each["subject"], []).append(each)
        return ended.status, found

    def verdict(self, subject: str) -> list[str]:
        return [each["verdict"] for each in self.look()[1][subject]]


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory, run: Run) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("n"), run)
    with socket.socket(socket.AF_UNIX) as pods:
        pods.bind(node.flags["--pod-resources-socket"])
        pods.listen()
        yield node


def test_doctor_finds_no_problem_on_a_healthy_node(node: Node) -> None:
    status, found = node.look()
    problems = [
        each for listed in found.values() for each in listed if each["verdict"] == "problem"
    ]
    assert (problems, status) == ([], 0)
    assert "simulated" in found["driver"][0]["text"]
    assert found["pod resources"][0]["verdict"] == found["cgroups"][0]["verdict"] == "ok"


def test_doctor_prints_lines_and_ends_with_1_when_there_is_a_problem(node: Node, run: Run) -> None:
    node.flags["--kubelet-plugins-directory-path"] = "/nowhere"
    ended = run("doctor", *(each for pair in node.flags.items() for each in pair))
    assert ended.status == 1
    assert "problem  kubelet folders: /nowhere does not exist\n" in ended.out
    assert "to mend: start the kubelet, or give --kubelet-plugins-directory-path" in ended.out
    assert ended.out.splitlines()[-1].endswith("1 problem")


def test_doctor_ends_with_2_when_a_setting_is_bad(run: Run) -> None:
    assert run("doctor", "--state-dir", "here").status == 2


@pytest.mark.parametrize(
    ("name", "text", "verdict"),
    [
        ("cdi/gpuslice.io-claim_a.json", "{", "problem"),
        ("cdi/gpuslice.io-claim_a.json", '{"kind": "x/y"}', "problem"),
        ("cdi/other.json", '{"kind": "gpuslice.io/claim"}', "problem"),
        ("etc/cdi/other.yaml", "kind: gpuslice.io/claim", "problem"),
        ("cdi/other.json", "{", "warning"),
        ("cdi/gpuslice.io-claim_a.json", '{"kind": "gpuslice.io/claim"}', "ok"),
        ("cdi/other.json", '{"kind": "nvidia.com/gpu"}', "ok"),
        ("cdi/other.txt", "{", "ok"),
    ],
)
def test_doctor_looks_for_specs_in_the_way(node: Node, name: str, text: str, verdict: str) -> None:
    node.write(name, text)
    assert node.verdict(CDI) == [verdict]


@pytest.mark.parametrize(
    ("config", "verdict"),
    [
        ("version = 2\n[plugins.cri]\ncdi_spec_dirs = ['{cdi}']\n", "problem"),
        ("version = 2\n[plugins.cri]\nenable_cdi = true\ncdi_spec_dirs = ['{cdi}']\n", "ok"),
        ("version = 3\n[plugins.cri]\nenable_cdi = false\n", "problem"),
        ("version = 3\n[plugins.cri]\ncdi_spec_dirs = ['/elsewhere']\n", "problem"),
        ("version = \n", "warning"),
    ],
)
def test_doctor_reads_whether_containerd_uses_cdi(node: Node, config: str, verdict: str) -> None:
    node.write("etc/containerd/config.toml", config.replace("{cdi}", str(node.root / "cdi")))
    assert node.verdict(RUNTIME) == [verdict]


def test_doctor_tells_a_served_default_folder_from_a_left_one(node: Node) -> None:
    subject = "/tmp/nvidia-mps"
    node.write("tmp/nvidia-mps/control", "")
    left = node.verdict(subject)
    node.write("proc/net/unix", "0: 2 0 10000 0001 01 1 /tmp/nvidia-mps/control\n")
    assert (left, node.verdict(subject)) == (["ok"], ["warning"])


def test_doctor_calls_sockets_that_nobody_serves_a_problem(node: Node) -> None:
    assert node.verdict("plugin") == ["warning"]
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(node.root / "registry/gpuslice.io-0f-reg.sock"))
    assert node.verdict("plugin") == ["problem"]


def test_doctor_needs_the_supervisor_where_sharing_is_not_simulated(node: Node) -> None:
    assert node.verdict("mpsd") == ["ok"]
    node.flags["--mpsd-socket"] = str(node.root / "mpsd.sock")
    assert node.verdict("mpsd")[0] == "problem"


def test_doctor_finds_programs_below_the_driver_root(node: Node) -> None:
    program = node.root / "usr/bin/nvidia-cuda-mps-control"
    node.flags["--mps-control-path"] = str(program)
    missing = node.verdict("MPS program")
    for name in (program.name, "nvidia-cuda-mps-server"):
        node.write(f"usr/bin/{name}", "")
        (program.parent / name).chmod(0o755)
    assert (missing, node.verdict("MPS program")) == (["problem"], ["ok"])


def test_filesystem_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:1 / /far\\040away rw shared:1 - xfs x rw\n"
        "3 2 0:1 / /far\\040away/run rw - tmpfs x rw\n"
    )
    kinds = [filesystem(Path(each), mounts) for each in ("/x", "/far away/b", "/far away/run/a/b")]
    assert kinds == ["ext4", "xfs", "tmpfs"]
    assert filesystem(Path("/x"), tmp_path / "none") == "unknown"
