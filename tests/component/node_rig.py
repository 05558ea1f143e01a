"""A node without hardware: the real plugin process between an embedded kubelet and API server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from dra_driver.model.claim import ClaimRef
from dra_driver.sim.api_profiles import V1_34_GATES, ApiProfile
from dra_driver.sim.api_server import SimApiServer
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import KubeletClaim, KubeletTimes
from tests import builders
from tests.waiting import eventually

TIMES = KubeletTimes(poll_s=0.02, start_wipe_s=0.1)


class NodeRig:
    """Folders, API server and kubelet of one node; plugin processes come and go.

    Attributes:
        simulation: the file of `--simulate`; change it to change the node.
    """

    def __init__(self, root: Path, api: SimApiServer, *, simulation: str) -> None:
        self.root = root
        self.api = api
        self.kubelet = FakeKubelet(root / "k", wipe=self.wipe, times=TIMES)
        self.simulation = root / "node.yaml"
        self.simulation.write_text(simulation)
        self.cdi = root / "cdi"
        self.state = root / "state"
        self._kubeconfig = api.write_kubeconfig(root / "kubeconfig")

    def wipe(self) -> None:
        """Delete the node's slices, as a kubelet that starts does."""
        for each in self.slices():
            self.api.delete("resourceslices", each["metadata"]["name"])

    def flags(self, **changes: str) -> list[str]:
        values = {
            "node-name": builders.NODE,
            "kubeconfig": str(self._kubeconfig),
            "simulate": str(self.simulation),
            "kubelet-registrar-directory-path": str(self.kubelet.registry),
            "kubelet-plugins-directory-path": str(self.kubelet.plugins_folder),
            "cdi-root": str(self.cdi),
            "state-dir": str(self.state),
            "run-dir": str(self.root / "run"),
            "log-format": "console",
        }
        values |= {name.replace("_", "-"): value for name, value in changes.items()}
        return [f"--{name}={value}" for name, value in values.items()]

    @contextmanager
    def plugin(self, name: str = "plugin", **flags: str) -> Iterator[PluginProcess]:
        """One process, which is killed at the end if it still runs; its log is shown on failure."""
        process = PluginProcess(self.flags(**flags), self.root / f"{name}.log")
        try:
            yield process
        except BaseException:
            print(process.log)
            raise
        finally:
            process.kill()

    def slices(self) -> tuple[dict[str, Any], ...]:
        return tuple(dict(each) for each in self.api.list("resourceslices"))

    def devices(self) -> list[dict[str, Any]]:
        return [device for each in self.slices() for device in each["spec"].get("devices", ())]

    def wait_ready(self) -> None:
        """Wait until the kubelet knows the driver and its devices are published."""
        eventually(lambda: self.kubelet.endpoints(builders.DRIVER), 20, "the driver registers")
        eventually(self.devices, 20, "devices are published")

    def gpus(self) -> list[str]:
        """Names of the devices that stand for GPUs, in the order in which they are offered."""
        return [
            device["name"]
            for device in self.devices()
            if device["attributes"]["type"]["string"] == "gpu"
        ]

    def allocate(self, number: int, results: list[dict[str, Any]], **changes: Any) -> KubeletClaim:
        """Create an allocated claim, as scheduler and API server leave it."""
        body = builders.claim_json(number, results=results, **changes)
        stored = self.api.create("resourceclaims", body, namespace="team-a")
        meta = stored["metadata"]
        return KubeletClaim(
            ref=ClaimRef("team-a", meta["name"], meta["uid"]), drivers=(builders.DRIVER,)
        )

    def specs(self) -> list[str]:
        return sorted(path.name for path in self.cdi.iterdir()) if self.cdi.exists() else []


class PluginProcess:
    """`gpuslice plugin` with its standard error in a file."""

    def __init__(self, flags: list[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dra_driver", "plugin", *flags],
                stderr=stderr,
                stdout=subprocess.DEVNULL,
                env=_environment(),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    def usage(self) -> tuple[int, int, int]:
        """Threads, descriptors and resident bytes."""
        process = psutil.Process(self.pid)
        with process.oneshot():
            return process.num_threads(), process.num_fds(), process.memory_info().rss

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = 20) -> int:
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        self.send(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def node_rig(
    root: Path, *, simulation: str, profile: ApiProfile = V1_34_GATES
) -> Iterator[NodeRig]:
    with SimApiServer(profile) as api:
        api.create_node(builders.NODE)
        rig = NodeRig(root, api, simulation=simulation)
        with rig.kubelet:
            yield rig


def simulation(gpus: int = 2, **document: Any) -> str:
    """A simulation file with H100s; `document` adds keys in YAML flow style."""
    lines = ["driverVersion: 570.133.20", 'cudaVersion: "12.8"', f"bootId: {builders.BOOT}"]
    lines += [f"{key}: {value}" for key, value in document.items()]
    lines.append("gpus:" if gpus else "gpus: []")
    lines += [
        f"- {{uuid: {builders.uuid(number)}, profile: h100-80gb-sxm, index: {number}}}"
        for number in range(gpus)
    ]
    return "\n".join(lines) + "\n"


def _environment() -> Mapping[str, str]:
    """Of the child: this one's, without settings that would reach it."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUSLICE_") and name not in ("NODE_NAME", "POD_UID")
    }
