"""How much of a GPU there is to give.

Published memory is what tenants can really have: the driver keeps a reserved part back, an MPS
server needs a little, and a board filled to the last byte fails where it should have fitted.
"""

from __future__ import annotations

from dra_driver.model.device import GpuFacts
from dra_driver.model.quantity import MIB

MEMORY_MINIMUM_MIB = 256
COMPUTE_WHOLE_PERCENT = 100
SHARES_PER_GPU = 48
"""Clients of one MPS server on Volta and later (CUDA MPS guide, "Limitations")."""

_MPS_SERVER_BYTES = 64 * MIB
_MARGIN_BYTES = 128 * MIB
_MARGIN_PERCENT = 1


def usable_memory_mib(gpu: GpuFacts) -> int | None:
    """Memory of a GPU that claims can hold together; None where the board does not say.

    Total less the driver's reserved part, less 64 MiB for an MPS server (26 to 35 were seen), less
    a margin of 1 %, at least 128 MiB; rounded down to whole MiB, never negative.
    """
    if gpu.memory_total_bytes is None:
        return None
    margin = max(gpu.memory_total_bytes * _MARGIN_PERCENT // 100, _MARGIN_BYTES)
    usable = gpu.memory_total_bytes - gpu.memory_reserved_bytes - _MPS_SERVER_BYTES - margin
    return max(usable, 0) // MIB


def slot_memory_mib(usable_mib: int, compute_percent: int) -> int:
    """Memory of a static slot: its percentage of the usable memory, rounded down."""
    return usable_mib * compute_percent // COMPUTE_WHOLE_PERCENT
