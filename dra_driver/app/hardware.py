"""Which adapters stand behind the ports of a node's GPUs: simulated ones or NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.ports import DriverFiles, GpuLibrary, ShareSupervisor, TimeSlicer
from dra_driver.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    gpus: GpuLibrary
    supervisor: ShareSupervisor
    time_slicer: TimeSlicer
    driver_files: DriverFiles


@contextmanager
def open_hardware(settings: Settings) -> Iterator[Hardware]:
    """Give the ports; leaving the block ends their waits and lets go of the driver.

    Raises:
        SettingsError: `--simulate` names no valid file.
    """
    sysfs = Sysfs(settings.host_root)
    with ExitStack() as stack:
        yield (
            _simulated(settings, sysfs, stack)
            if settings.simulate
            else _real(settings, sysfs, stack)
        )


def _simulated(settings: Settings, sysfs: Sysfs, stack: ExitStack) -> Hardware:
    from dra_driver.adapters.profiles import resolve_simulate  # noqa: PLC0415
    from dra_driver.adapters.simulated import SimulatedGpus  # noqa: PLC0415
    from dra_driver.adapters.simulated_file import SimulationFile  # noqa: PLC0415
    from dra_driver.adapters.simulated_sharing import (  # noqa: PLC0415
        SimulatedDriverFiles,
        SimulatedSupervisor,
        SimulatedTimeSlicer,
    )

    file = SimulationFile(resolve_simulate(settings.simulate), node_name=settings.node_name)
    gpus = SimulatedGpus(file, sysfs=sysfs)
    stack.callback(gpus.close)
    return Hardware(
        gpus=gpus,
        supervisor=SimulatedSupervisor(
            file,
            run_dir=settings.run_dir,
            clock=SystemClock(),
            burst_allowed=settings.allow_burst,
        ),
        time_slicer=SimulatedTimeSlicer(file, run_dir=settings.run_dir),
        driver_files=SimulatedDriverFiles(),
    )


def _real(settings: Settings, sysfs: Sysfs, stack: ExitStack) -> Hardware:
    from dra_driver.adapters.driver_files import NvidiaDriverFiles  # noqa: PLC0415
    from dra_driver.adapters.no_sharing import NoSharing  # noqa: PLC0415
    from dra_driver.adapters.nvml import NvmlGpus  # noqa: PLC0415

    gpus = NvmlGpus(driver_root=settings.driver_root, sysfs=sysfs)
    stack.callback(gpus.close)
    sharing = NoSharing()
    folders = (
        settings.cdi_root,
        settings.host_root / "etc/cdi",
        settings.host_root / "var/run/cdi",
    )
    return Hardware(
        gpus=gpus,
        supervisor=sharing,
        time_slicer=sharing,
        driver_files=NvidiaDriverFiles(
            driver_root=settings.driver_root,
            host_root=settings.host_root,
            cdi_folders=tuple(dict.fromkeys(folders)),
        ),
    )
