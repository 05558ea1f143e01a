"""Driver processes: gpuslice and the Go reference, each on a node and in folders of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import psutil

from tests import builders
from tests.bench.api import DRIVER
from tests.bench.kubelet import Kubelet, register

GPUSLICE = "gpuslice"
REFERENCE = "reference"
PARALLEL = "reference-parallel"
"""The reference without the helper's lock, and with an intent record before the work."""

MINIMAL = "minimal"
"""The least driver that Python and grpcio allow; publishes no slices."""

LIMITED = "reference-limited"
"""The reference with client-go's default limit of requests, as drivers have that do not set one."""

VARIANTS = (GPUSLICE, REFERENCE, PARALLEL, MINIMAL)
_STOP_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process holds; `pss_mib` counts shared pages by their share."""

    rss_mib: float
    pss_mib: float
    threads: int
    descriptors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What all drivers of a run need.

    Attributes:
        folder: of the run.
        run_folder: on a file system in memory, as /run is; holds what a reboot may take.
        binary: of the reference.
        devices: JSON file with the devices of each slice that the reference publishes.
    """

    folder: Path
    run_folder: Path
    binary: Path
    kubeconfig: Path
    devices: Path


class Driver:
    """One process from its start to its stop.

    Args:
        setup: of the run.
        variant: which driver.
        node: its node.
        gpus: how many gpuslice simulates.
        document: what it simulates instead.
        flags: further ones.

    Attributes:
        answered_s: from the start until the kubelet's GetInfo was answered.
        started_at_s: when the process was started, of perf_counter.
    """

    def __init__(
        self,
        setup: Setup,
        variant: str,
        *,
        node: str,
        gpus: int,
        document: str = "",
        flags: Mapping[str, str] | None = None,
    ) -> None:
        self.variant = variant
        self.node = node
        root = setup.folder / node
        registry = root / "registry"
        for path in (registry, root / "plugins"):
            path.mkdir(parents=True, exist_ok=True)
        self._log = root / "log"
        if variant == GPUSLICE:
            simulation_file(setup, node).write_text(document or simulation(gpus))
        command = [*_command(setup, variant, root, node=node), *_flags(flags or {})]
        with self._log.open("ab") as log:
            self.started_at_s = perf_counter()
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment(setup.folder)
            )
        try:
            endpoint, answered_at_s = register(registry)
        except BaseException:
            self._end()
            print(self.log)
            raise
        self.answered_s = answered_at_s - self.started_at_s
        self.kubelet = Kubelet(endpoint)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def cpu_s(self) -> float:
        """Processor time so far, in the kernel's ticks of 10 ms."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def usage(self) -> Usage:
        process = psutil.Process(self._process.pid)
        memory = process.memory_full_info()
        return Usage(
            rss_mib=memory.rss / 2**20,
            pss_mib=memory.pss / 2**20,
            threads=process.num_threads(),
            descriptors=process.num_fds(),
        )

    def stop(self) -> None:
        self.kubelet.close()
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._process.kill()
        self._process.wait()


def simulation(gpus: int) -> str:
    """A simulated node of H100s; those beyond what fits a board are only there to be held."""
    lines = [
        "driverVersion: 570.133.20",
        'cudaVersion: "12.8"',
        f"bootId: {builders.BOOT}",
        "gpus:",
    ]
    lines += [
        f"- {{uuid: {builders.uuid(number)}, profile: h100-80gb-sxm, index: {number}}}"
        for number in range(gpus)
    ]
    return "\n".join(lines) + "\n"


def simulation_file(setup: Setup, node: str) -> Path:
    """What gpuslice simulates on a node."""
    return setup.folder / node / "node.yaml"


def environment(folder: Path) -> dict[str, str]:
    """Of gpuslice's processes, without settings that would reach them."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUSLICE_")
        and name not in {"NODE_NAME", "POD_UID", "PYTHONDONTWRITEBYTECODE"}
    }
    # Installed packages are compiled once; so is this checkout, without leaving files in it.
    return inherited | {"PYTHONPYCACHEPREFIX": str(folder / "pycache")}


def _command(setup: Setup, variant: str, root: Path, *, node: str) -> list[str]:
    common = {
        "node-name": node,
        "driver-name": DRIVER,
        "kubeconfig": str(setup.kubeconfig),
        "cdi-root": str(root / "cdi"),
        "state-dir": str(root / "state"),
    }
    if variant == GPUSLICE:
        own = {
            "kubelet-registrar-directory-path": str(root / "registry"),
            "kubelet-plugins-directory-path": str(root / "plugins"),
            "run-dir": str(setup.run_folder / node),
            "simulate": str(simulation_file(setup, node)),
        }
        return [sys.executable, "-m", "dra_driver", "plugin", *_flags(common | own)]
    common_of_references = {
        "registry": str(root / "registry"),
        "plugins": str(root / "plugins" / DRIVER),
    }
    if variant == MINIMAL:
        flags = _flags(common | common_of_references)
        return [sys.executable, "-m", "tests.bench.minimal", *flags]
    parallel = variant == PARALLEL
    limit = {"qps": "0"} if variant == LIMITED else {}
    own = (
        common_of_references
        | limit
        | {
            "devices": str(setup.devices),
            "serialize": str(not parallel).lower(),
            "intent": str(parallel).lower(),
        }
    )
    return [str(setup.binary), *_flags(common | own)]


def _flags(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]
