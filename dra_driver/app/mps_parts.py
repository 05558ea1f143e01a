"""What the supervisor of MPS is made of, in `gpuslice mpsd` and in a plugin that hosts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dra_driver import log
from dra_driver.adapters.client_prover import CudaProver
from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_control import ControlProgram, ProgramControl
from dra_driver.adapters.mps_daemons import ProgramDaemons
from dra_driver.adapters.mps_processes import Processes
from dra_driver.adapters.mps_servers import ProgramServers
from dra_driver.adapters.mps_store import SharesFiles
from dra_driver.adapters.share_folders import RunFolders
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.app.gpus import NodeGpus
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.mps.keeper import Keeper
from dra_driver.mps.supervisor import Supervisor
from dra_driver.mps.world import MpsPorts
from dra_driver.plan.health import LOST, NOT_LOADED
from dra_driver.plan.tiers import share_ability
from dra_driver.ports import ClientProver, MpsControl, MpsDaemons, MpsServers, Recorder
from dra_driver.settings import Settings, SharingMode

_LOG = log.get(__name__)

KnownInventory = Callable[[], Inventory | None]
"""The newest inventory; None where none was read yet. Asked often, so it has to be at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsParts:
    """Neither runs yet: the supervisor works for its callers, the keeper once `run` is called."""

    supervisor: Supervisor
    keeper: Keeper


def mpsd_socket(settings: Settings) -> Path:
    """Where `gpuslice mpsd` serves."""
    return Path(settings.mpsd_socket) if settings.mpsd_socket else settings.run_dir / "mpsd.sock"


def mpsd_lock(settings: Settings) -> Path:
    """Held by the one process that works on the run folder's MPS."""
    return settings.run_dir / "mpsd.lock"


@contextmanager
def open_supervisor(
    settings: Settings, *, gpus: NodeGpus, inventory: KnownInventory, recorder: Recorder
) -> Iterator[MpsParts]:
    """Put a supervisor together; leaving the block ends it, while daemons with shares go on.

    The caller sees to it that nobody else works on the run folder, see `mpsd_lock`.
    """
    tools = _tools(settings, gpus.simulation)
    supervisor = Supervisor(
        _ports(settings, gpus, inventory, tools),
        recorder=recorder,
        burst_allowed=settings.allow_burst,
        single_uid=settings.mps_single_uid,
        expose_folder=settings.mps_expose_folder,
        simulated=gpus.simulation is not None,
    )
    _LOG.info("Supervising MPS", daemons=tools.daemons_are, servers=tools.servers_are)
    try:
        # A proof takes the GPU for a moment, for nothing where MPS is not wanted.
        prove = settings.sharing is SharingMode.MPS
        yield MpsParts(supervisor=supervisor, keeper=Keeper(supervisor, prove=prove))
    finally:
        supervisor.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tools:
    daemons: MpsDaemons
    settings: MpsControl
    servers: MpsServers
    prover: ClientProver
    daemons_are: str
    servers_are: str


def _tools(settings: Settings, simulation: SimulationFile | None) -> _Tools:
    if simulation is None:
        return _real(settings)
    return (
        _real_daemons(settings, simulation)
        if settings.mps_control_path
        else _simulated(settings, simulation)
    )


def _real(settings: Settings) -> _Tools:
    programs = _programs(settings)
    program = ControlProgram(programs, run_dir=settings.run_dir)
    processes = Processes()
    return _Tools(
        daemons=ProgramDaemons(programs, program, processes, run_dir=settings.run_dir),
        settings=ProgramControl(program),
        servers=ProgramServers(program, processes),
        prover=CudaProver(programs, uid=settings.mps_single_uid),
        daemons_are="real",
        servers_are="real",
    )


def _real_daemons(settings: Settings, simulation: SimulationFile) -> _Tools:
    """A control program runs without a GPU, its servers do not."""
    from dra_driver.adapters.simulated_mps import (  # noqa: PLC0415
        ServerlessControl,
        SimulatedProver,
    )
    from dra_driver.adapters.simulated_mps_servers import SimulatedMpsServers  # noqa: PLC0415

    programs = _programs(settings)
    program = ControlProgram(programs, run_dir=settings.run_dir)
    daemons = ProgramDaemons(programs, program, Processes(), run_dir=settings.run_dir)
    servers = SimulatedMpsServers(simulation, run_dir=settings.run_dir, daemons=daemons)
    return _Tools(
        daemons=daemons,
        settings=ServerlessControl(ProgramControl(program), servers),
        servers=servers,
        prover=SimulatedProver(simulation),
        daemons_are="real",
        servers_are="simulated",
    )


def _simulated(settings: Settings, simulation: SimulationFile) -> _Tools:
    from dra_driver.adapters.simulated_mps import (  # noqa: PLC0415
        SimulatedMpsControl,
        SimulatedMpsDaemons,
        SimulatedProver,
    )
    from dra_driver.adapters.simulated_mps_servers import SimulatedMpsServers  # noqa: PLC0415

    daemons = SimulatedMpsDaemons(simulation, run_dir=settings.run_dir)
    servers = SimulatedMpsServers(simulation, run_dir=settings.run_dir, daemons=daemons)
    return _Tools(
        daemons=daemons,
        settings=SimulatedMpsControl(simulation, run_dir=settings.run_dir, servers=servers),
        servers=servers,
        prover=SimulatedProver(simulation),
        daemons_are="simulated",
        servers_are="simulated",
    )


def _programs(settings: Settings) -> DriverPrograms:
    path = settings.mps_control_path
    return DriverPrograms(
        driver_root=settings.driver_root,
        run_dir=settings.run_dir,
        control_path=Path(path) if path else None,
    )


def _ports(
    settings: Settings, gpus: NodeGpus, inventory: KnownInventory, tools: _Tools
) -> MpsPorts:
    def driver_version() -> str | None:
        known = inventory()
        return known.driver_version if known is not None else None

    return MpsPorts(
        control=gpus.control,
        daemons=tools.daemons,
        settings=tools.settings,
        servers=tools.servers,
        folders=RunFolders(settings.run_dir),
        prover=tools.prover,
        store=SharesFiles(
            settings.run_dir, boot_id=gpus.library.boot_id(), driver_version=driver_version
        ),
        clock=SystemClock(),
        run_dir=settings.run_dir,
        gpus=FitGpus(inventory),
        driver_version=driver_version,
        lost=lambda: _lost(inventory()),
    )


def _lost(inventory: Inventory | None) -> frozenset[GpuUuid]:
    """GPUs without a driver among them: compute modes go with it."""
    health = inventory.health if inventory is not None else ()
    return frozenset(GpuUuid(each.uuid) for each in health if each.cause in {LOST, NOT_LOADED})


class FitGpus:
    """GPUs that MPS can run on, worked out once for each inventory: every share asks.

    A board in MIG mode, say, is not even tried.
    """

    def __init__(self, inventory: KnownInventory) -> None:
        self._inventory = inventory
        self._known: tuple[Inventory | None, tuple[GpuUuid, ...]] = (None, ())

    def __call__(self) -> tuple[GpuUuid, ...]:
        newest, known = self._inventory(), self._known
        if newest is not known[0]:
            known = self._known = (newest, _fit(newest))
        return known[1]


def _fit(inventory: Inventory | None) -> tuple[GpuUuid, ...]:
    if inventory is None:
        return ()
    version = inventory.driver_version
    return tuple(
        gpu.uuid
        for gpu in inventory.gpus
        if share_ability(gpu, version, burst_allowed=False).tier is not None
    )
