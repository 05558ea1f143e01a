"""Ports of sharing that the plugin uses: who enforces shares, and who uses a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.mps import GpuSharing
from dra_driver.model.owner import PodClaims, ProcessOwner
from dra_driver.model.share import GpuShare, ShareAbility


class SharingWatch(Protocol):
    """States of all GPUs, by UUID: the present ones first, then again at every change.

    Iterating raises AdapterError where the supervisor is lost; the caller watches anew.
    """

    def __iter__(self) -> Iterator[tuple[GpuSharing, ...]]: ...

    def close(self) -> None:
        """End the iteration from any thread, even while it waits for the next change."""
        ...


class ShareSupervisor(Protocol):
    """Enforces shares of GPUs, level-triggered."""

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        """Make `shares` the whole set of this GPU; an empty set frees the GPU.

        Raises:
            NotReady: not converged by the deadline; the set is kept as desired.
            AdapterError: the set cannot be enforced.
        """
        ...

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        """Begin an `apply` that may go on meanwhile.

        What it gives waits for the end and raises as `apply`. It has to be called, once, before
        anything else is applied to this GPU.
        """
        ...

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        """What sharing can promise, one entry for each GPU of `inventory`, in its order.

        Raises:
            AdapterError: it is not known yet.
        """
        ...


class SharingStates(Protocol):
    def watch(self) -> SharingWatch:
        """Raises AdapterError where the supervisor cannot be reached."""
        ...


class ClientTerminator(Protocol):
    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        """End one client process's use of a GPU; its next CUDA call fails, the others go on.

        Raises:
            NotFound: it is no client of this GPU's server.
            AdapterError: it could not be done; the text says why.
        """
        ...


class ProcessOwners(Protocol):
    def owner(self, pid: int) -> ProcessOwner | None:
        """What a process belongs to; None where it has ended.

        Raises:
            AdapterError: that cannot be read.
        """
        ...


class PodResources(Protocol):
    def pods(self, deadline: Deadline) -> tuple[PodClaims, ...]:
        """Containers of this node and the claims they use, as the kubelet tells them.

        Raises:
            AdapterError: the kubelet does not answer.
        """
        ...
