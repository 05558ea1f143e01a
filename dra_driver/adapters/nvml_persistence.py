"""Whether the GPU driver stays initialised while nobody uses a GPU."""

from __future__ import annotations

import warnings
from typing import Any

from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid


class NvmlPersistence:
    """Reads within the session of an open `NvmlGpus`, which has to have read its inventory.

    Args:
        nvml: the module pynvml.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml

    def persistent(self, gpu: GpuUuid) -> bool | None:
        """Whether a GPU stays initialised; None where it has no such mode.

        Raises:
            AdapterError: the driver does not say.
        """
        nvml = self._nvml
        try:
            mode = nvml.nvmlDeviceGetPersistenceMode(nvml.nvmlDeviceGetHandleByUUID(gpu))
        except nvml.NVMLError_NotSupported:
            return None
        except nvml.NVMLError as error:
            raise AdapterError(f"cannot read the persistence mode of {gpu}: {error}") from error
        return bool(mode == nvml.NVML_FEATURE_ENABLED)


def open_persistence() -> NvmlPersistence:
    with warnings.catch_warnings():
        # See adapters.nvml, which is imported before where there is a driver.
        warnings.filterwarnings("ignore", "The pynvml package is deprecated", FutureWarning)
        import pynvml  # noqa: PLC0415

    return NvmlPersistence(pynvml)
