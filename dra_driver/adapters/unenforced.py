"""Shares that take turns on their GPUs: nothing stands behind them, so nothing is enforced."""

from __future__ import annotations

from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import GpuShare, ShareAbility, Sharing
from dra_driver.plan.tiers import share_abilities


class UnenforcedShares:
    """`ShareSupervisor` and `ClientTerminator` of a node whose GPUs are time-sliced.

    Args:
        burst_allowed: what `abilities` tells of every GPU.
    """

    def __init__(self, *, burst_allowed: bool) -> None:
        self._burst_allowed = burst_allowed

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        del deadline
        if any(share.sharing is Sharing.MPS for share in shares):
            raise AdapterError(
                f"GPU {gpu} has shares under MPS, but this node runs with --sharing time-slicing: "
                "delete the pods that hold them, or start gpuslice with --sharing mps"
            )

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return share_abilities(inventory, burst_allowed=self._burst_allowed, time_slicing=True)

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        del deadline
        raise AdapterError(
            f"process {pid} keeps GPU {gpu}: clients can be ended under --sharing mps only",
            permanent=True,
        )
