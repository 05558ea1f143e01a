"""Fakes of what steps act on besides CDI specs: sharing and time slices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event

from dra_driver.errors import GpusliceError
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import GpuShare, ShareAbility, TimeSlice


class FakeSupervisor:
    """Remembers the shares of each GPU.

    Attributes:
        broken: an error that every apply raises while it is set, after the shares were taken.
        gate: apply waits for it; set from the start.
        entered: set when an apply begins.
        deadlines: of the calls, in order.
    """

    def __init__(self) -> None:
        self.shares: dict[GpuUuid, tuple[GpuShare, ...]] = {}
        self.calls = 0
        self.broken: GpusliceError | None = None
        self.gate = Event()
        self.gate.set()
        self.entered = Event()
        self.deadlines: list[Deadline] = []

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        self.calls += 1
        self.deadlines.append(deadline)
        self.entered.set()
        self.gate.wait(30)
        if shares:
            self.shares[gpu] = shares
        else:
            self.shares.pop(gpu, None)
        if self.broken is not None:
            raise self.broken

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return ()


class FakeTimeSlicer:
    """Remembers the interval of each GPU that has not the default one."""

    def __init__(self) -> None:
        self.intervals: dict[GpuUuid, TimeSlice] = {}
        self.broken: GpusliceError | None = None

    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        if self.broken is not None:
            raise self.broken
        self.intervals[gpu] = interval
        if interval is TimeSlice.DEFAULT:
            del self.intervals[gpu]
