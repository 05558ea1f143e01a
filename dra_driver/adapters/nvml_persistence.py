"""Whether the GPU driver stays initialised while nobody uses a GPU."""

from __future__ import annotations

from dra_driver.adapters.nvml import NvmlGpus
from dra_driver.model.device import GpuUuid


class NvmlPersistence:
    """Reads persistence modes.

    Args:
        gpus: whose open driver it uses.
    """

    def __init__(self, gpus: NvmlGpus) -> None:
        self._gpus = gpus

    def persistent(self, gpu: GpuUuid) -> bool | None:
        """Whether a GPU stays initialised; None where it has no such mode.

        Raises:
            AdapterError: the driver does not say.
        """
        with self._gpus.lend(gpu, "query for the persistence mode") as (nvml, handle):
            try:
                mode = nvml.nvmlDeviceGetPersistenceMode(handle)
            except nvml.NVMLError_NotSupported:
                return None
        return bool(mode == nvml.NVML_FEATURE_ENABLED)
