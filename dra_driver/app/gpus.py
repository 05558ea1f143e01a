"""The node's GPUs and what root can do to them: a simulated node's or NVIDIA's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.ports import GpuControl, GpuLibrary
from dra_driver.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGpus:
    """Attributes: simulation: what describes them; None where they are real."""

    library: GpuLibrary
    control: GpuControl
    simulation: SimulationFile | None


@contextmanager
def open_gpus(settings: Settings) -> Iterator[NodeGpus]:
    """Give the ports; leaving the block ends their waits and lets go of the driver.

    Raises:
        SettingsError: `--simulate` names no valid file.
    """
    sysfs = Sysfs(settings.host_root)
    if settings.simulate:
        with _simulated(settings, sysfs) as gpus:
            yield gpus
        return
    from dra_driver.adapters.nvml import NvmlGpus  # noqa: PLC0415
    from dra_driver.adapters.nvml_control import NvmlControl  # noqa: PLC0415

    library = NvmlGpus(driver_root=settings.driver_root, sysfs=sysfs)
    try:
        yield NodeGpus(library=library, control=NvmlControl(library), simulation=None)
    finally:
        library.close()


@contextmanager
def _simulated(settings: Settings, sysfs: Sysfs) -> Iterator[NodeGpus]:
    from dra_driver.adapters.profiles import resolve_simulate  # noqa: PLC0415
    from dra_driver.adapters.simulated import SimulatedGpus  # noqa: PLC0415
    from dra_driver.adapters.simulated_control import SimulatedControl  # noqa: PLC0415

    file = SimulationFile(resolve_simulate(settings.simulate), node_name=settings.node_name)
    library = SimulatedGpus(file, sysfs=sysfs)
    try:
        yield NodeGpus(
            library=library,
            control=SimulatedControl(file, run_dir=settings.run_dir),
            simulation=file,
        )
    finally:
        library.close()
