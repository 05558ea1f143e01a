"""Who tells of the health of a node's GPUs, and what they make of it together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dra_driver.app.hardware import Hardware
from dra_driver.errors import AdapterError
from dra_driver.loops.health_monitor import HealthMonitor
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.health import DeviceHealth
from dra_driver.model.mps import GpuSharing
from dra_driver.model.record import Record
from dra_driver.plan.broken_state import with_broken
from dra_driver.plan.health import XidPolicy, with_sharing
from dra_driver.ports import Clock, Recorder
from dra_driver.settings import Settings
from dra_driver.state.current import Current, joined


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """What several loops set.

    Attributes:
        gpus: newest inventory as it was read, or None while there is no GPU driver.
        states: of sharing.
        broken: GPUs on which containers run on after a checkpoint or restore that broke them.
    """

    gpus: Current[Inventory | None] = field(default_factory=lambda: Current(None))
    states: Current[tuple[GpuSharing, ...]] = field(default_factory=lambda: Current(()))
    broken: Current[tuple[DeviceHealth, ...]] = field(default_factory=lambda: Current(()))

    def together(self) -> Current[Inventory | None]:
        """The inventory with the health that all of them tell; nobody else sets it."""
        shared = joined(self.gpus, self.states, with_sharing)
        return joined(shared, self.broken, with_broken)

    def known_gpus(self) -> tuple[GpuUuid, ...]:
        known = self.gpus.get()
        return tuple(gpu.uuid for gpu in known.gpus) if known is not None else ()

    def close(self) -> None:
        """Let nobody wait for news any more."""
        for each in (self.gpus, self.states, self.broken):
            each.close()

    def monitor(
        self,
        hardware: Hardware,
        problem: Current[str],
        *,
        records: Callable[[], tuple[Record, ...]],
        settings: Settings,
        clock: Clock,
        recorder: Recorder,
    ) -> HealthMonitor:
        """What reads the inventory."""
        return HealthMonitor(
            hardware.gpus,
            self.gpus,
            problem=problem,
            clock=clock,
            recorder=recorder,
            policy=XidPolicy.with_ignored(settings.additional_ignored_xids),
            held=lambda: self._held(records),
        )

    def _held(self, records: Callable[[], tuple[Record, ...]]) -> frozenset[GpuUuid]:
        try:
            return frozenset(gpu for record in records() for gpu in record.gpus)
        except AdapterError:
            # While the journal cannot be read, no GPU may vanish: any of them may be held.
            return frozenset(self.known_gpus())
