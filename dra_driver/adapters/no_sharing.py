"""Sharing where nothing can enforce it: every GPU is offered whole."""

from __future__ import annotations

from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import GpuShare, ShareAbility, TimeSlice

_REASON = "sharing needs the MPS supervisor, which is not part of this version"


class NoSharing:
    """`ShareSupervisor` and `TimeSlicer` that refuse everything but the state that they find."""

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        del deadline
        if shares:
            raise AdapterError(f"GPU {gpu} cannot be shared: {_REASON}", permanent=True)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return tuple(
            ShareAbility(gpu=gpu.uuid, tier=None, burst_allowed=False, reason=_REASON)
            for gpu in inventory.gpus
        )

    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        if interval is not TimeSlice.DEFAULT:
            raise AdapterError(
                f"the time slice of GPU {gpu} cannot be set to {interval}: {_REASON}; leave "
                "timeSlice out of the claim's config",
                permanent=True,
            )
