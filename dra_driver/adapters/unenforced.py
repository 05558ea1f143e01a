"""Shares that take turns on their GPUs: nothing stands behind them, so nothing is enforced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import GpuShare, ShareAbility, Sharing
from dra_driver.plan.tiers import share_abilities
from dra_driver.ports import ShareSupervisor


class UnenforcedShares:
    """`ShareSupervisor` and `ClientTerminator` of a node whose GPUs are time-sliced.

    A node that ran under MPS before may have shares of then. They go on, and leave one by one: who
    supervises them is told as long as it is there, and without it they cannot be renewed.

    Args:
        burst_allowed: what `abilities` tells of every GPU.
        supervisor: gives who holds shares under MPS, if anybody does now.
    """

    def __init__(
        self, *, burst_allowed: bool, supervisor: Callable[[], ShareSupervisor | None]
    ) -> None:
        self._burst_allowed = burst_allowed
        self._supervisor = supervisor
        self._held: dict[GpuUuid, frozenset[str]] = {}

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        before = self._held.get(gpu, frozenset())
        now = frozenset(share.id for share in shares if share.sharing is Sharing.MPS)
        if not before and not now:
            return
        supervisor = self._supervisor()
        if supervisor is not None:
            supervisor.apply(gpu, shares, deadline)
        self._held[gpu] = now
        if supervisor is None and not now < before:
            raise AdapterError(
                f"GPU {gpu} has shares under MPS, but this node runs with --sharing time-slicing: "
                "delete the pods that hold them, or start gpuslice with --sharing mps"
            )

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return share_abilities(inventory, burst_allowed=self._burst_allowed, time_slicing=True)

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        del deadline
        raise AdapterError(
            f"process {pid} keeps GPU {gpu}: clients can be ended under --sharing mps only",
            permanent=True,
        )
