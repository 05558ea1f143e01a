"""Files of the NVIDIA driver: the toolkit's word, our own look-up, and paths of two worlds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import structlog

from dra_driver.adapters.driver_files import NvidiaDriverFiles
from dra_driver.errors import AdapterError
from dra_driver.model.cdi import DeviceNode, DriverEdits
from dra_driver.plan.cdi import SpecEntry, claim_spec
from tests.builders import DRIVER, gpu, inventory, uuid

DATA = Path(__file__).parent
RECORDED = DATA / "golden/toolkit/nvidia.yaml"
VERSION = "570.133.20"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
NODE = inventory(gpu(0), gpu(1))


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


class Node:
    """A host's files below `host`; the driver's below `driver` of it."""

    def __init__(self, host: Path, driver: str = "") -> None:
        self.host = host
        self.driver = host / driver
        self.cdi = host / "run-cdi"
        names = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", "nvidia1")
        touch(*(host / "dev" / name for name in names))

    def files(self) -> NvidiaDriverFiles:
        return NvidiaDriverFiles(
            driver_root=self.driver,
            host_root=self.host,
            cdi_folders=(self.cdi, self.host / "etc/cdi"),
        )

    def install(self, *names: str, version: str = VERSION, folder: str = LIBRARIES) -> None:
        for name in names or ("libcuda.so", "libnvidia-ml.so", "libnvidia-gpucomp.so"):
            touch(self.driver / folder / f"{name}.{version}")

    def record(self, text: str = "", *, folder: str = "run-cdi", name: str = "nvidia.yaml") -> Path:
        path = self.host / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text or RECORDED.read_text())
        return path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def targets(edits: DriverEdits) -> list[str]:
    return sorted(mount.container_path for mount in edits.common.mounts)


def test_files_of_the_recorded_toolkit_spec_are_as_written_down(node: Node) -> None:
    node.record()
    edits = node.files().edits(NODE)
    entries = tuple(
        SpecEntry(
            request="gpus", device=f"gpu-{number}", share_id=None, gpu=gpu(number),
            compute_percent=100, memory_mib=80000,
        )
        for number in (0, 1)
    )  # fmt: skip
    spec = claim_spec(driver=DRIVER, claim_uid="c1", entries=entries, driver_edits=edits)
    content = json.loads(spec.step.content)
    jsonschema.validate(content, json.loads((DATA / "data/cdi-schema.json").read_text()))
    assert content == json.loads((DATA / "golden/toolkit/claim.json").read_text())


def test_files_leave_out_what_belongs_to_mps(node: Node) -> None:
    node.record()
    text = repr(node.files().edits(NODE))
    assert "nvidia-smi" in text
    assert "mps" not in text


def test_files_follow_the_toolkit_spec_when_it_changes(node: Node) -> None:
    path = node.record()
    files = node.files()
    files.edits(NODE)
    path.write_text(path.read_text().replace("/run/nvidia-persistenced", "/run/elsewhere"))
    assert "/run/elsewhere/socket" in targets(files.edits(NODE))


def test_files_name_the_node_of_today_when_the_toolkit_spec_is_of_an_earlier_boot(
    node: Node,
) -> None:
    node.record()
    swapped = inventory(gpu(0, minor=1, index=1), gpu(1, minor=0, index=0))
    edits = node.files().edits(swapped)
    assert [each.path for each in edits.per_gpu[uuid(0)].device_nodes] == ["/dev/nvidia1"]
    assert [each.path for each in edits.per_gpu[uuid(1)].device_nodes] == ["/dev/nvidia0"]


def test_files_come_from_json_and_from_the_second_folder_too(node: Node) -> None:
    spec = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": uuid(0), "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
        ],
        "containerEdits": {
            "mounts": [{"hostPath": f"/a/libcuda.so.{VERSION}", "containerPath": "/a/libcuda"}]
        },
    }
    node.record(json.dumps(spec), folder="etc/cdi", name="nvidia.json")
    assert targets(node.files().edits(NODE)) == ["/a/libcuda"]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "kind: nvidia.com/gpu",
        "kind: nvidia.com/gpu\ndevices: 3",
        "kind: other.com/gpu\ndevices: []",
    ],
)
def test_files_are_looked_up_when_the_toolkit_spec_cannot_be_used(node: Node, text: str) -> None:
    node.record(text)
    node.install()
    assert f"/{LIBRARIES}/libcuda.so.1" in targets(node.files().edits(NODE))


def test_files_are_looked_up_when_the_toolkit_spec_is_of_another_driver(node: Node) -> None:
    node.record()
    node.install(version="580.1.2")
    files = node.files()
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            edits = files.edits(inventory(gpu(0), driver_version="580.1.2"))
    assert f"/{LIBRARIES}/libcuda.so.1" in targets(edits)
    assert [entry["reason"] for entry in logs] == [
        "it names no library of driver 580.1.2; run nvidia-ctk cdi generate"
    ]


def test_files_are_mounted_by_the_names_that_programs_load(node: Node) -> None:
    node.install()
    touch(node.driver / "usr/bin/nvidia-smi")
    edits = node.files().edits(NODE)
    names = ["libcuda.so", "libcuda.so.1", f"libnvidia-gpucomp.so.{VERSION}", "libnvidia-ml.so.1"]
    folders = [f"/{LIBRARIES}", "/usr/local/nvidia/lib64"]
    expected = [f"{folder}/{name}" for folder in folders for name in names]
    assert targets(edits) == sorted(["/usr/bin/nvidia-smi", *expected])
    assert [each.path for each in edits.common.device_nodes] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
    ]
    assert edits.common.hooks == ()


def test_files_refresh_the_linker_cache_when_the_host_has_the_tool(node: Node) -> None:
    node.install()
    touch(node.host / "usr/bin/nvidia-cdi-hook")
    (hook,) = node.files().edits(NODE).common.hooks
    assert hook.path == "/usr/bin/nvidia-cdi-hook"
    assert hook.args == (
        "nvidia-cdi-hook", "update-ldcache",
        "--folder", f"/{LIBRARIES}", "--folder", "/usr/local/nvidia/lib64",
    )  # fmt: skip


def test_files_have_paths_of_the_host_when_it_is_seen_elsewhere(tmp_path: Path) -> None:
    node = Node(tmp_path / "host", driver="run/driver/root")
    node.install()
    for name in ("nvidia-uvm", "nvidia1"):
        shutil.move(node.host / "dev" / name, node.host / name)
        touch(node.driver / "dev" / name)
    edits = node.files().edits(NODE)
    assert str(tmp_path) not in repr(edits)
    sources = {mount.host_path for mount in edits.common.mounts}
    assert f"/run/driver/root/{LIBRARIES}/libcuda.so.{VERSION}" in sources
    assert all("/run/driver" not in target for target in targets(edits))
    uvm = DeviceNode(path="/dev/nvidia-uvm", host_path="/run/driver/root/dev/nvidia-uvm")
    assert uvm in edits.common.device_nodes
    assert edits.per_gpu[uuid(0)].device_nodes == (DeviceNode(path="/dev/nvidia0"),)
    (own,) = edits.per_gpu[uuid(1)].device_nodes
    assert own.host_path == "/run/driver/root/dev/nvidia1"


def test_files_keep_the_driver_root_when_it_is_not_below_the_hosts(tmp_path: Path) -> None:
    node = Node(tmp_path / "host")
    node.driver = tmp_path / "driver"
    node.install()
    sources = {mount.host_path for mount in node.files().edits(NODE).common.mounts}
    assert f"{tmp_path}/driver/{LIBRARIES}/libcuda.so.{VERSION}" in sources


def test_files_of_a_gpu_without_a_node_are_missing(node: Node) -> None:
    node.install()
    (node.host / "dev/nvidia1").unlink()
    assert list(node.files().edits(NODE).per_gpu) == [uuid(0)]


def test_files_are_found_when_the_driver_does_not_say_its_version(node: Node) -> None:
    node.install(folder="usr/lib64")
    unknown = inventory(gpu(0), driver_version=None)
    assert "/usr/lib64/libcuda.so.1" in targets(node.files().edits(unknown))


def test_files_say_what_to_do_when_the_driver_is_not_there(node: Node) -> None:
    with pytest.raises(AdapterError, match=rf"no libcuda.so.{VERSION}.*--driver-root"):
        node.files().edits(NODE)
    node.install()
    (node.host / "dev/nvidia-uvm").unlink()
    with pytest.raises(AdapterError, match=r"/dev/nvidia-uvm.*nvidia-modprobe"):
        node.files().edits(NODE)
