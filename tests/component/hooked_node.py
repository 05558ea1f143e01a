"""A node whose plugin has the checkpoint hook installed on a host that is a folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.adapters.checkpoint_client import call_hook
from dra_driver.model.claim import PodRef
from dra_driver.plan.claim_marks import MARKER_PATH
from dra_driver.sim.kubelet_values import KubeletClaim
from tests.component.node_rig import NodeRig, PluginProcess, node_rig, simulation
from tests.fakes.proc import FakeProc
from tests.native.hook import build
from tests.unit.planning import CONFIG, config, request, whole_result
from tests.waiting import eventually

CONTAINER = "c" * 64
POD_UID = "11111111-2222-4333-8444-555555555555"
INIT, CRIU = 100, 88
PROGRAM = "/opt/gpuslice/bin/gpuslice-hook"
_CRIU_CONFIG = "etc/criu/runc.conf"
_CALL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HookedNode:
    """The node; `host` is where its plugin sees the host."""

    rig: NodeRig
    host: Path
    proc: FakeProc
    image: Path

    @contextmanager
    def plugin(self, name: str = "plugin", **flags: str) -> Iterator[PluginProcess]:
        """Run a plugin; the hook is wanted unless `flags` say otherwise."""
        given = {
            "host_root": str(self.host),
            "pod_resources_socket": str(self.rig.root / "nobody.sock"),
            "checkpoint_hook": "true",
            "publish_mode": "static",
            "http_endpoint": "127.0.0.1:0",
        }
        with self.rig.plugin(name, **(given | flags)) as process:
            yield process

    def claim(
        self, number: int, *, on: int = 0, pods: Sequence[PodRef] = (), **fields: str
    ) -> KubeletClaim:
        """A claim of pods for a whole GPU, with these fields in its config."""
        values = {"apiVersion": CONFIG, "kind": "GpuConfig", **fields}
        return self.rig.allocate(
            number,
            [whole_result(number=on)],
            requests=[request()],
            config=[config(values)],
            pods=pods,
        )

    def spec(self, claim: KubeletClaim) -> dict[str, Any]:
        """What the CDI spec of a claim puts into each of its containers."""
        (name,) = [name for name in self.rig.specs() if claim.ref.uid in name]
        edits: dict[str, Any] = json.loads((self.rig.cdi / name).read_text())["containerEdits"]
        return edits

    def start_container(self, claim: KubeletClaim) -> None:
        """Let a container with the claim's mark run, and CRIU beside it."""
        group = f"kubepods/pod{POD_UID}/{CONTAINER}"
        mark = f"{self.rig.root}/run/claims/{claim.ref.uid}"
        assert Path(mark).is_file()
        self.proc.add(INIT, cgroup=f"0::/{group}", mounts=(f"254:0 {mark} {MARKER_PATH}",))
        folder = self.host / "sys/fs/cgroup" / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text(f"{INIT}\n")
        self.start_criu()

    def start_criu(self) -> None:
        self.proc.add(CRIU, started=600)
        (self.proc.path / str(CRIU) / "fd").mkdir(exist_ok=True)
        (self.proc.path / str(CRIU) / "fd/9").symlink_to("/images")

    def end_criu(self) -> None:
        (self.proc.path / str(CRIU) / "stat").unlink()

    def script(self, action: str) -> tuple[int, str]:
        """Run the installed program as CRIU does; its status and what it said."""
        ended = subprocess.run(
            [str(self.host / PROGRAM[1:])],
            env={
                "CRTOOLS_SCRIPT_ACTION": action,
                "CRTOOLS_INIT_PID": str(INIT),
                "CRTOOLS_IMAGE_DIR": f"/proc/{CRIU}/fd/9",
            },
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            check=False,
        )
        return ended.returncode, ended.stderr

    def call(self, method: str, **fields: Any) -> dict[str, Any]:
        """Call the checkpoint service."""
        return call_hook(self.rig.root / "run/checkpoint.sock", method, fields, timeout_s=_CALL_S)

    def operations(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("ListOperations")["operations"]
        return found

    def states(self) -> list[str]:
        return [each["state"] for each in self.operations()]

    def wait_served(self) -> None:
        """Wait until somebody answers on both sockets, and the node is ready."""
        self.rig.wait_ready()
        for name in ("checkpoint.sock", "hook.sock"):
            eventually(lambda: self._answers(name), 30, f"{name} is served")  # noqa: B023

    def wait_state(self, state: str) -> None:
        eventually(lambda: self.states()[-1:] == [state], 60, f"the operation is {state}")

    def _answers(self, name: str) -> bool:
        # One that was killed leaves its sockets behind.
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.rig.root / "run" / name)) == 0

    @property
    def configured(self) -> bool:
        """CRIU is told of the program."""
        file = self.host / _CRIU_CONFIG
        return file.exists() and PROGRAM in file.read_text()

    @property
    def installed(self) -> bool:
        return (self.host / PROGRAM[1:]).exists()

    def checkpointable(self) -> set[bool]:
        """What the devices that stand for GPUs say."""
        attributes = [each["attributes"] for each in self.rig.devices()]
        gpus = [each for each in attributes if each["type"]["string"] == "gpu"]
        return {each["checkpointable"]["bool"] for each in gpus}

    def events(self, reason: str) -> list[str]:
        found = (dict(each) for each in self.rig.api.list("events"))
        return [each["message"] for each in found if each["reason"] == reason]


@contextmanager
def hooked_node(root: Path) -> Iterator[HookedNode]:
    """A node with two GPUs; PATH of this process has to have `<root>/image` first."""
    host, image = root / "host", root / "image"
    for each in (host / "etc", host / "opt", image):
        each.mkdir(parents=True, mode=0o755)
    proc = FakeProc(host / "proc")
    (proc.path / "meminfo").write_text("MemAvailable: 8388608 kB\n")
    # Reads processes of the made-up host.
    build(image / "gpuslice-hook", "-O1", f'-DPROC_ROOT="{proc.path}"')
    assert os.environ["PATH"].split(":")[0] == str(image)
    with node_rig(root, simulation=simulation()) as rig:
        yield HookedNode(rig=rig, host=host, proc=proc, image=image)
