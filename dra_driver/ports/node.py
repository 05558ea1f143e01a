"""Ports to this node: its GPUs, folders, locks and clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from dra_driver.model.cdi import DriverEdits
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.health import GpuEvent
from dra_driver.model.record import NewerRecord, Record
from dra_driver.model.share import TimeSlice

Json = Mapping[str, Any]


class GpuLibrary(Protocol):
    """The node's GPUs."""

    def inventory(self) -> Inventory:
        """Read all GPUs afresh; one that cannot be read is listed as unreadable.

        Raises:
            DriverNotLoaded: there is no GPU driver (yet).
            AdapterError: the driver is there but enumeration failed.
        """
        ...

    def wait_events(self, timeout_s: float) -> tuple[GpuEvent, ...]:
        """Wait for events; return early and empty where the inventory may have changed.

        Raises:
            AdapterError: events cannot be waited for now; the caller backs off.
        """
        ...

    def boot_id(self) -> str:
        """Identity of this boot of the node; another value means that hardware state is gone."""
        ...


class TimeSlicer(Protocol):
    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None: ...


class DriverFiles(Protocol):
    """Files and device nodes of the GPU driver that a container needs."""

    def edits(self, inventory: Inventory) -> DriverEdits: ...


class StagedSpec(Protocol):
    """A CDI spec that is written but not in its place yet."""

    def place(self) -> None:
        """Put it there, as `SpecStore.write` does."""
        ...

    def close(self) -> None:
        """Remove it unless it was placed; always to be called, once."""
        ...


class SpecStore(Protocol):
    """The folder of CDI specs; only this driver's own are ever seen or touched.

    Changes are there for everybody at once, and survive a power cut when `settle` has returned.
    """

    def write(self, name: str, content: str) -> None:
        """Put a spec in place atomically; writes nothing where it already stands byte-equal."""
        ...

    def stage(self, name: str, content: str) -> StagedSpec:
        """Do the part of `write` that takes time, and change nothing that anybody sees."""
        ...

    def holds(self, name: str, content: str) -> bool:
        """Whether a spec stands with exactly this content."""
        ...

    def remove(self, name: str) -> None: ...

    def settle(self) -> None:
        """Make all changes so far durable; free of cost where there are none."""
        ...

    def names(self) -> tuple[str, ...]:
        """Names of this driver's specs, sorted; leftovers of interrupted writes are removed."""
        ...


class JournalView(Protocol):
    """What the journal holds."""

    def records(self) -> Mapping[str, Record]:
        """All readable records by claim UID."""
        ...

    def find(self, uid: str) -> Record | None:
        """One of `records`; its cost does not grow with their number."""
        ...

    def on(self, gpus: Iterable[GpuUuid] = (), *, pods: Iterable[str] = ()) -> Mapping[str, Record]:
        """Those of `records` that use one of these GPUs or name one of these pods' UIDs.

        Its cost is that of what it gives.
        """
        ...

    def newer(self) -> Mapping[str, NewerRecord]:
        """Entries of newer releases by claim UID; `put` and `delete` refuse them."""
        ...


class JournalTransaction(JournalView, Protocol):
    """A view and its changes under the journal's lock."""

    def put(self, record: Record) -> None:
        """Enter a record.

        One that is RESERVED outlives processes, but maybe no power cut: it holds nothing in the
        next boot.
        """
        ...

    def delete(self, uid: str) -> None: ...


class Journal(Protocol):
    """Durable records of claims, shared by all plugin processes of the node."""

    def view(self) -> AbstractContextManager[JournalView]:
        """Look at all changes that were begun before, by other processes too.

        What another process begins meanwhile is not seen: the caller holds the locks of the claim
        or the GPUs that it looks for, or does not mind. Raises like `transaction`.
        """
        ...

    def staged(self, record: Record) -> AbstractContextManager[None]:
        """Write a record out, without any lock; `put` of this very object in the block is short.

        Without `put` nothing is entered. Raises AdapterError where it cannot be written.
        """
        ...

    def transaction(self) -> AbstractContextManager[JournalTransaction]:
        """Hold the journal's lock (for milliseconds); changes by other processes are visible.

        Raises:
            AdapterError: the journal cannot be read or written.
        """
        ...


class Locks(Protocol):
    """Cross-process locks; the order is claim, then GPUs, then the journal."""

    def claim(self, uid: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Raises NotReady when the deadline passes first."""
        ...

    def gpus(self, uuids: tuple[GpuUuid, ...], deadline: Deadline) -> AbstractContextManager[None]:
        """Hold all of `uuids`, taken in sorted order.

        Raises:
            NotReady: the deadline passes first, or too many calls wait for one GPU already.
        """
        ...


class Clock(Protocol):
    def monotonic_s(self) -> float: ...

    def wall_s(self) -> float:
        """Seconds since the epoch, UTC."""
        ...


class Recorder(Protocol):
    """Metrics. Names are Prometheus names without the `gpuslice_` prefix; labels are few."""

    def count(self, name: str, /, **labels: str) -> None: ...

    def observe(self, name: str, value: float, /, **labels: str) -> None: ...

    def gauge(self, name: str, value: float, /, **labels: str) -> None: ...

    def forget(self, name: str, /, **labels: str) -> None:
        """Drop one series of a gauge with open labels: what it told of is gone."""
        ...
