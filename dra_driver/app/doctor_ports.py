"""Which adapters stand behind what the doctor looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dra_driver.app.doctor_gpus import GpuPorts
from dra_driver.app.hardware import open_hardware
from dra_driver.settings import Settings


@contextmanager
def open_ports(settings: Settings) -> Iterator[GpuPorts]:
    """Give the ports; leaving the block lets go of the driver.

    Raises:
        SettingsError: `--simulate` names no valid file.
    """
    with open_hardware(settings) as hardware:
        if settings.simulate:
            yield GpuPorts(library=hardware.gpus)
            return
        from dra_driver.adapters.nvml_persistence import open_persistence  # noqa: PLC0415

        yield GpuPorts(library=hardware.gpus, persistence=open_persistence())
