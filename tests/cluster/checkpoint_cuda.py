"""CRIU's plugin for CUDA on a node without a GPU, and pods that it takes for users of CUDA."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.model.cuda import CudaState
from tests.cluster.checkpoint_site import counting
from tests.cluster.life_site import Tenant
from tests.fakes.cuda_processes import CudaSimulation, build_program
from tests.kube.build import criu_folder
from tests.kube.cluster import Cluster
from tests.kube.criu import configure_criu, install_criu

# CRIU's FI_PLUGIN_CUDA_FORCE_ENABLE.
_WITHOUT_GPU = {"CRIU_FAULT": "138"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaPlugin:
    """The plugin, with a stand-in for the program that it moves processes by."""

    simulation: CudaSimulation
    program: Path

    def state(self, tenant: Tenant) -> CudaState:
        """Give the state of a pod's first process, which has to use CUDA."""
        command = [str(self.program), "--get-state", "--pid", str(tenant.pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return CudaState(done.stdout.strip().capitalize())

    def transitions(self, tenant: Tenant) -> tuple[str, ...]:
        """Give what was asked for of a pod's first process, in order, without mere questions."""
        calls = self.simulation.calls()
        asked = (call.action for call in calls if call.pid == tenant.pid)
        return tuple(action for action in asked if not action.startswith("get-"))

    def fail(self, action: str) -> None:
        """Let an action fail from now on."""
        self.simulation.fault(action, "fail 999")


@contextmanager
def cuda_plugin(cluster: Cluster, folder: Path, *lines: str) -> Iterator[CudaPlugin]:
    """Let CRIU use its plugin; `lines` are those of its configuration besides."""
    simulation = CudaSimulation(folder)
    program = cluster.cell.programs / "cuda-checkpoint"
    build_program(program, simulation.state)
    install_criu(cluster, environment=_WITHOUT_GPU)
    configure_criu(cluster, f"libdir {criu_folder() / 'plugins'}", *lines)
    yield CudaPlugin(simulation=simulation, program=program)
    program.unlink()
    install_criu(cluster)


def counting_with_cuda(key: str) -> dict[str, Any]:
    """Give the part of a pod's spec that lets it count and use CUDA; as for `Site.create`."""
    return counting(env={"FAKE_CUDA": key})
