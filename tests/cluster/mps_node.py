"""MPS of a node, as mpsd tells it, as its daemons answer, and as processes and files show it."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.mpsd_client import MpsdClient
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase
from tests.cluster import deployed
from tests.cluster.life_processes import processes
from tests.cluster.life_site import Tenant
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until
from tests.kube.tools import run

PROGRAM = "nvidia-cuda-mps-control"
TIMEOUT_S = 90.0

_RUN = "/run/gpuslice"
_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_PERCENT = "get_default_active_thread_percentage"
_MEMORY = "get_default_device_pinned_mem_limit 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsNode:
    """The real node of a cluster where mpsd runs; `programs` is the folder of the control program."""

    cluster: Cluster
    programs: Path

    def states(self) -> dict[str, GpuSharing]:
        """What mpsd tells of each GPU now."""
        socket = self.cluster.node_path(f"{_RUN}/mpsd.sock")
        client = MpsdClient(socket, clock=SystemClock(), burst_allowed=True)
        with closing(client), closing(client.watch()) as watch:
            return {str(state.gpu): state for state in next(iter(watch))}

    def wait_phase(self, gpu: str, phase: MpsPhase) -> GpuSharing:
        return self.wait_state(gpu, lambda state: state.phase is phase, phase.value)

    def wait_state(
        self, gpu: str, until: Callable[[GpuSharing], bool], waiting_for: str
    ) -> GpuSharing:
        """Give the state of a GPU once it is as wanted."""

        def problem() -> str:
            state = self.states().get(gpu, GpuSharing(gpu=GpuUuid(gpu)))
            return "" if until(state) else str(state)

        wait_until(problem, waiting_for=f"GPU {gpu}: {waiting_for}", timeout_s=TIMEOUT_S)
        return self.states()[gpu]

    def life(self, gpu: str) -> tuple[MpsPhase, int | None, int | None, int]:
        """What changes of a GPU's MPS only where its clients are lost: daemon, server, restarts."""
        state = self.states()[gpu]
        return state.phase, state.daemon_pid, state.server_pid, state.restarts

    def daemons(self, gpu: str) -> tuple[int, ...]:
        """The GPU's control daemons, as the node's processes show."""
        return tuple(
            pid
            for pid in self.cluster.cell.cgroups.pids()
            if _command(pid)[:2] == [str(self._inside / PROGRAM), "-f"]
            and environment(pid).get(_PIPES) == self._pipes(gpu)
        )

    def limits(self, gpu: str) -> tuple[str, str]:
        """The daemon's default ceilings, compute and memory, as its own program prints them."""
        percent, memory = self.ask(gpu, _PERCENT, _MEMORY).splitlines()
        return percent, memory

    def ask(self, gpu: str, *commands: str) -> str:
        """Give commands to a daemon, as root on the node."""
        program = str(self.programs / PROGRAM)
        command = ("env", f"{_PIPES}={self._pipes(gpu)}", program)
        text = "".join(f"{each}\n" for each in commands)
        return run(self.cluster.cell.inside(command), stdin=text)

    def compute_mode(self, gpu: str) -> str:
        """The simulated GPU's compute mode."""
        file = self._place(f"simulated/compute-modes/{gpu}.json")
        return str(json.loads(file.read_text())["mode"]) if file.exists() else "Default"

    def server(self, gpu: str) -> Json:
        """What is kept of the simulated server."""
        file = self._place(f"simulated/mps/{gpu}.server.json")
        record: Json = json.loads(file.read_text())
        return record

    def folders(self) -> dict[str, frozenset[str]]:
        """Names of the files in each share's folder."""
        folder = self._place("shares")
        return {each.name: names_in(each) for each in folder.iterdir()}

    def inode(self, gpu: str) -> int:
        """Of the socket that the daemon's clients connect through."""
        return self._place(f"mps/{gpu}/pipe/control").stat().st_ino

    def supervisors(self) -> tuple[int, ...]:
        """The processes of `gpuslice mpsd`; the init that starts it is none."""
        return tuple(pid for pid in self._mpsd_processes() if _command(pid)[0].endswith("python3"))

    def init(self) -> int:
        (found,) = (pid for pid in self._mpsd_processes() if "gpuslice-init" in _command(pid)[0])
        return found

    def log(self) -> str:
        return self.cluster.kubectl(
            "logs", "-n", deployed.NAMESPACE, self.pod()["metadata"]["name"], "--tail=-1"
        )

    def pod(self) -> Json:
        """The pod of mpsd."""
        (found,) = deployed.pods_of(self.cluster, "mpsd")
        return found

    @property
    def _inside(self) -> Path:
        """The folder of the control program, as mpsd's container sees it."""
        return Path("/host", *self.programs.parts[1:])

    def _mpsd_processes(self) -> Iterator[int]:
        (status,) = self.pod()["status"]["containerStatuses"]
        yield from processes(self.cluster, status["containerID"])

    def _pipes(self, gpu: str) -> str:
        return f"{_RUN}/mps/{gpu}/pipe"

    def _place(self, name: str) -> Path:
        return self.cluster.node_path(f"{_RUN}/{name}")


def gpu_of(tenant: Tenant) -> str:
    """The GPU of a tenant with one share."""
    return environment(tenant.pid)["GPUSLICE_GPU_UUID"]


def names_in(folder: Path) -> frozenset[str]:
    return frozenset(each.name for each in folder.iterdir())


def environment(pid: int) -> dict[str, str]:
    """What a process was started with; empty where it has ended."""
    try:
        text = Path(f"/proc/{pid}/environ").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return dict(each.split("=", 1) for each in text.split("\0") if "=" in each)


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return [""]
