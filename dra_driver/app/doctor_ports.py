"""Which adapters stand behind what the doctor looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_control import ControlProgram
from dra_driver.adapters.mps_daemons import ProgramDaemons
from dra_driver.adapters.mps_processes import Processes
from dra_driver.app.doctor_gpus import GpuPorts, Persistence
from dra_driver.app.gpus import NodeGpus, open_gpus
from dra_driver.ports import MpsDaemons, SharingStates
from dra_driver.settings import Settings, SharingMode


def driver_programs(settings: Settings) -> DriverPrograms:
    control, smi = settings.mps_control_path, settings.nvidia_smi_path
    return DriverPrograms(
        driver_root=settings.driver_root,
        run_dir=settings.run_dir,
        control_path=Path(control) if control else None,
        nvidia_smi_path=Path(smi) if smi else None,
    )


def supervised(settings: Settings) -> bool:
    """Whether shares of this node need a `gpuslice mpsd`."""
    hosted = settings.simulate and not (settings.mpsd_socket or settings.mps_control_path)
    return settings.sharing is SharingMode.MPS and not hosted


@contextmanager
def open_ports(settings: Settings) -> Iterator[GpuPorts]:
    """Give the ports; leaving the block lets go of the driver and of mpsd.

    Raises:
        SettingsError: `--simulate` names no valid file.
    """
    with open_gpus(settings) as gpus, _states(settings) as states:
        real = not settings.simulate
        yield GpuPorts(
            library=gpus.library,
            persistence=_persistence(gpus) if real else None,
            control=gpus.control if real or states is not None else None,
            daemons=_daemons(settings) if real or settings.mps_control_path else None,
            states=states,
        )


@contextmanager
def _states(settings: Settings) -> Iterator[SharingStates | None]:
    if not supervised(settings):
        yield None
        return
    from dra_driver.adapters.mpsd_client import MpsdClient  # noqa: PLC0415 - imports gRPC

    client = MpsdClient(
        Path(settings.mpsd_socket or settings.run_dir / "mpsd.sock"),
        clock=SystemClock(),
        burst_allowed=settings.allow_burst,
        expose_folder=settings.mps_expose_folder,
    )
    try:
        yield client
    finally:
        client.close()


def _daemons(settings: Settings) -> MpsDaemons:
    programs = driver_programs(settings)
    program = ControlProgram(programs, run_dir=settings.run_dir)
    return ProgramDaemons(programs, program, Processes(), run_dir=settings.run_dir)


def _persistence(gpus: NodeGpus) -> Persistence | None:
    from dra_driver.adapters.nvml import NvmlGpus  # noqa: PLC0415 - where there is a driver
    from dra_driver.adapters.nvml_persistence import NvmlPersistence  # noqa: PLC0415

    return NvmlPersistence(gpus.library) if isinstance(gpus.library, NvmlGpus) else None
