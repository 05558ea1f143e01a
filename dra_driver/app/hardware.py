"""Which adapters stand behind the ports of a node's GPUs: simulated ones or NVIDIA's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.time_slicer import NvidiaSmi
from dra_driver.adapters.unenforced import UnenforcedShares
from dra_driver.app.gpus import NodeGpus
from dra_driver.model.device import GpuUuid
from dra_driver.model.share import TimeSlice
from dra_driver.ports import (
    ClientTerminator,
    DriverFiles,
    GpuControl,
    GpuLibrary,
    Recorder,
    ShareSupervisor,
    SharingStates,
    TimeSlicer,
)
from dra_driver.settings import Settings, SharingMode
from dra_driver.sockets import is_dead_socket
from dra_driver.telemetry.off import NoMetrics

if TYPE_CHECKING:
    from dra_driver.adapters.mpsd_client import MpsdClient

Loop = Callable[[Event], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Who enforces shares.

    Attributes:
        states: None where nobody enforces anything.
        loops: name and body of what has to run before shares can be applied.
    """

    supervisor: ShareSupervisor
    terminator: ClientTerminator
    states: SharingStates | None = None
    loops: tuple[tuple[str, Loop], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    gpus: GpuLibrary
    control: GpuControl
    sharing: Sharing
    time_slicer: TimeSlicer
    driver_files: DriverFiles


@contextmanager
def open_hardware(
    settings: Settings, gpus: NodeGpus, recorder: Recorder | None = None
) -> Iterator[Hardware]:
    """Give the ports over a node's open GPUs; leaving the block ends their waits."""
    with _open_sharing(settings, gpus, recorder or NoMetrics()) as sharing:
        slicer, files = (
            _real(settings) if gpus.simulation is None else _simulated(settings, gpus.simulation)
        )
        yield Hardware(
            gpus=gpus.library,
            control=gpus.control,
            sharing=sharing,
            time_slicer=slicer,
            driver_files=files,
        )


@contextmanager
def _open_sharing(settings: Settings, gpus: NodeGpus, recorder: Recorder) -> Iterator[Sharing]:
    if settings.sharing is SharingMode.TIME_SLICING:
        with _LateMpsd(settings) as mpsd:
            nobody = UnenforcedShares(
                burst_allowed=settings.allow_burst, supervisor=mpsd.if_it_serves
            )
            yield Sharing(supervisor=nobody, terminator=nobody)
    elif gpus.simulation is not None and not (settings.mpsd_socket or settings.mps_control_path):
        from dra_driver.app.mps_host import host_supervisor  # noqa: PLC0415

        with host_supervisor(settings, gpus=gpus, recorder=recorder) as hosted:
            yield Sharing(
                supervisor=hosted,
                terminator=hosted,
                states=hosted,
                loops=(("mps-supervisor", hosted.run),),
            )
    else:
        with closing(_client(settings)) as client:
            yield Sharing(supervisor=client, terminator=client, states=client)


def _client(settings: Settings) -> MpsdClient:
    from dra_driver.adapters.mpsd_client import MpsdClient  # noqa: PLC0415
    from dra_driver.app.mps_parts import mpsd_socket  # noqa: PLC0415

    return MpsdClient(
        mpsd_socket(settings),
        clock=SystemClock(),
        burst_allowed=settings.allow_burst,
        expose_folder=settings.mps_expose_folder,
    )


class _LateMpsd(ExitStack):
    """The connection to an mpsd that is mostly not there, made when it is asked for."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._client: MpsdClient | None = None
        self._lock = Lock()

    def if_it_serves(self) -> ShareSupervisor | None:
        from dra_driver.app.mps_parts import mpsd_socket  # noqa: PLC0415

        path = mpsd_socket(self._settings)
        # One that a killed mpsd left would keep each claim that leaves waiting for its return.
        if not path.is_socket() or is_dead_socket(path):
            return None
        with self._lock:
            if self._client is None:
                self._client = self.enter_context(closing(_client(self._settings)))
            return self._client


def _simulated(settings: Settings, file: SimulationFile) -> tuple[TimeSlicer, DriverFiles]:
    from dra_driver.adapters.simulated_sharing import (  # noqa: PLC0415
        SimulatedDriverFiles,
        SimulatedTimeSlicer,
    )

    return SimulatedTimeSlicer(file, run_dir=settings.run_dir), SimulatedDriverFiles()


def _real(settings: Settings) -> tuple[TimeSlicer, DriverFiles]:
    from dra_driver.adapters.driver_files import NvidiaDriverFiles  # noqa: PLC0415
    from dra_driver.adapters.recent_files import RecentFiles  # noqa: PLC0415

    folders = (
        settings.cdi_root,
        settings.host_root / "etc/cdi",
        settings.host_root / "var/run/cdi",
    )
    files = NvidiaDriverFiles(
        driver_root=settings.driver_root,
        host_root=settings.host_root,
        cdi_folders=tuple(dict.fromkeys(folders)),
    )
    return _LateNvidiaSmi(settings), RecentFiles(files, clock=SystemClock())


class _LateNvidiaSmi:
    """`TimeSlicer` that looks for the program when it is needed: the driver may come later."""

    def __init__(self, settings: Settings) -> None:
        path = settings.nvidia_smi_path
        self._programs = DriverPrograms(
            driver_root=settings.driver_root,
            run_dir=settings.run_dir,
            nvidia_smi_path=Path(path) if path else None,
        )

    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        program = NvidiaSmi(
            str(self._programs.nvidia_smi()), environment=self._programs.environment()
        )
        program.set_interval(gpu, interval)
