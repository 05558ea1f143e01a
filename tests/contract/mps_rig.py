"""MPS of one GPU, simulated or with real control daemons, for tests that run alike on both."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_control import ControlProgram, ProgramControl
from dra_driver.adapters.mps_daemons import ProgramDaemons
from dra_driver.adapters.mps_processes import Processes
from dra_driver.adapters.mps_servers import ProgramServers
from dra_driver.adapters.share_folders import RunFolders
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.simulated_mps import SimulatedMpsControl, SimulatedMpsDaemons
from dra_driver.adapters.simulated_mps_servers import SimulatedMpsServers
from dra_driver.model.mps import DaemonProcess
from dra_driver.ports.mps import MpsControl, MpsDaemons, MpsServers, ShareFolders
from tests.builders import gpu, uuid
from tests.fakes.gpu_node import NodeState, simulation_text, write_whole
from tests.kube.build import MPS_VERSIONS, mps_driver_root

SIMULATED = "simulated"
BACKENDS = (
    SIMULATED,
    *(pytest.param(version, marks=pytest.mark.mps) for version in MPS_VERSIONS),
)
GPU = uuid(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    daemons: MpsDaemons
    control: MpsControl
    servers: MpsServers
    folders: ShareFolders


class RealRig:
    """With the daemons of one release."""

    def __init__(self, folder: Path, version: str, *, timeout_s: float = 30.0) -> None:
        self.run_dir = folder / "run"
        self.driver_root = mps_driver_root(version)
        self._timeout_s = timeout_s
        self.ports = self.again()

    def again(self) -> Ports:
        return self.ports_of(self.programs(), timeout_s=self._timeout_s)

    def programs(self, control_path: Path | None = None) -> DriverPrograms:
        return DriverPrograms(
            driver_root=self.driver_root, run_dir=self.run_dir, control_path=control_path
        )

    def ports_of(
        self, programs: DriverPrograms, *, timeout_s: float = 30.0, run_dir: Path | None = None
    ) -> Ports:
        run_dir = run_dir or self.run_dir
        program = ControlProgram(programs, run_dir=run_dir, timeout_s=timeout_s)
        processes = Processes()
        return Ports(
            daemons=ProgramDaemons(programs, program, processes, run_dir=run_dir),
            control=ProgramControl(program),
            servers=ProgramServers(program, processes),
            folders=RunFolders(run_dir),
        )

    def die(self) -> None:
        os.kill(self._daemon().pid, signal.SIGKILL)

    @contextmanager
    def hung(self) -> Iterator[None]:
        pid, patient = self._daemon().pid, self.ports
        impatient = self.ports_of(self.programs(), timeout_s=0.3)
        self.ports = replace(patient, control=impatient.control)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            # A test may have killed it.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            self.ports = patient

    def close(self) -> None:
        self.ports.daemons.kill(GPU)

    def _daemon(self) -> DaemonProcess:
        found = self.ports.daemons.find(GPU)
        assert found is not None
        return found


class SimulatedRig:
    """Without any program."""

    def __init__(self, folder: Path) -> None:
        self.run_dir = folder / "run"
        self.path = folder / "node.yaml"
        self.state = NodeState(gpus=(gpu(0), gpu(1)))
        self.path.write_text(simulation_text(self.state))
        self.ports = self.again()

    def again(self) -> Ports:
        file = SimulationFile(self.path, node_name="node-a")
        daemons = SimulatedMpsDaemons(file, run_dir=self.run_dir)
        servers = SimulatedMpsServers(file, run_dir=self.run_dir, daemons=daemons)
        return Ports(
            daemons=daemons,
            control=SimulatedMpsControl(file, run_dir=self.run_dir, servers=servers),
            servers=servers,
            folders=RunFolders(self.run_dir),
        )

    def die(self) -> None:
        (self.run_dir / f"simulated/mps/{GPU}.daemon.json").unlink()

    @contextmanager
    def hung(self) -> Iterator[None]:
        self.fault("mps.command", "TIMEOUT")
        try:
            yield
        finally:
            self.fault()

    def fault(self, call: str = "", error: str = "", **more: object) -> None:
        """Put a fault into the file; without arguments take all out."""
        document = json.loads(simulation_text(self.state))
        entry = {"call": call, **({"error": error} if error else {}), **more}
        document["faults"] = [entry] if call else []
        write_whole(self.path, json.dumps(document))

    def close(self) -> None:
        self.ports.daemons.kill(GPU)


def make_rig(backend: str, folder: Path) -> RealRig | SimulatedRig:
    return SimulatedRig(folder) if backend == SIMULATED else RealRig(folder, backend)
