"""CRIU's plugin for CUDA on a node without a GPU, and pods that it takes for users of CUDA."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dra_driver.model.cuda import CudaState
from tests.cluster.checkpoint_site import CONTAINER, Checkpoints
from tests.cluster.deployed import set_simulated, simulated_document
from tests.cluster.life_site import Tenant
from tests.fakes.cuda_processes import build_library, build_program
from tests.kube.build import criu_folder
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.criu import install_criu
from tests.kube.tools import run

# Pods of the driver see these, too.
_STATE = "/run/gpuslice/cuda-states"
_DRIVER = "/run/gpuslice/cuda-driver"
_PROGRAM = "usr/bin/cuda-checkpoint"
_LIBRARY = "usr/lib/x86_64-linux-gnu/libcuda.so.1"
_USER = Path(__file__).with_name("cuda_user.c")

DRIVER_SETTINGS = {"driver-root": _DRIVER, "cuda-checkpoint-path": f"{_DRIVER}/{_PROGRAM}"}
"""Settings of a plugin that finds the stand-in for the GPU driver, while there is one."""

# CRIU's FI_PLUGIN_CUDA_FORCE_ENABLE.
_WITHOUT_GPU = {"CRIU_FAULT": "138"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaPlugin:
    """The plugin, with a stand-in for the program that it moves processes by."""

    cluster: Cluster
    program: Path

    @contextmanager
    def computing(self, tenant: Tenant, gpu: str) -> Iterator[None]:
        """Let the node's GPU tell of a pod's first process, as it does where it computes."""
        document = simulated_document(self.cluster)
        process = {"gpu": gpu, "pid": tenant.pid, "memory": "64Mi", "mps": False}
        set_simulated(self.cluster, {**document, "processes": [process]})
        yield
        set_simulated(self.cluster, document)

    def state(self, tenant: Tenant) -> CudaState:
        """Give the state of a pod's first process, which has to use CUDA."""
        command = (str(self.program), "--get-state", "--pid", str(tenant.pid))
        return CudaState(run(self.cluster.cell.inside(command)).strip().capitalize())

    def transitions(self, tenant: Tenant) -> tuple[str, ...]:
        """Give what was asked for of a pod's first process, in order, without mere questions."""
        calls = (line.split() for line in (self._folder / "calls").read_text().splitlines())
        asked = (action for _, action, pid, *_ in calls if int(pid) == tenant.pid)
        return tuple(action for action in asked if not action.startswith("get-"))

    def fail(self, action: str) -> None:
        """Let an action fail from now on."""
        (self._folder / action).write_text("fail 999")

    @property
    def _folder(self) -> Path:
        return self.cluster.node_path(_STATE)


def plugin_line() -> str:
    """Give the line of CRIU's configuration that lets it use the plugin."""
    return f"libdir {criu_folder() / 'plugins'}"


@contextmanager
def cuda_plugin(cluster: Cluster) -> Iterator[CudaPlugin]:
    """Have what the plugin needs, for CRIU that is configured by `plugin_line`."""
    folder = cluster.node_path(_STATE)
    folder.mkdir(parents=True)
    driver = cluster.node_path(_DRIVER)
    program = cluster.cell.programs / "cuda-checkpoint"
    for each in (program, driver / _PROGRAM):
        build_program(each, Path(_STATE))
    build_library(driver / _LIBRARY, Path(_STATE))
    install_criu(cluster, environment=_WITHOUT_GPU)
    yield CudaPlugin(cluster=cluster, program=program)
    install_criu(cluster)
    program.unlink()
    shutil.rmtree(driver)
    shutil.rmtree(folder)


def start_with_cuda(checkpoints: Checkpoints, name: str, *requests: Json) -> Tenant:
    """Start a pod that counts and uses CUDA, with a claim for each request."""
    site = checkpoints.site
    site.folder.mkdir(exist_ok=True)
    program = site.folder / _USER.stem
    subprocess.run(["cc", "-static", "-pthread", "-o", program, _USER], check=True)
    library = site.folder / "libcuda.so.1"
    library.write_bytes(bytes(4096))
    container = {
        "name": CONTAINER,
        "image": "busybox:1",
        "command": [f"/life/{program.name}", f"/life/{library.name}"],
        "env": [{"name": "FAKE_CUDA", "value": name}],
    }
    site.create(name, *requests, containers=[container])
    return checkpoints.counting(name)
