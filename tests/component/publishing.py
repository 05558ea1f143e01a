"""A publisher that runs against some API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from dra_driver.adapters.kube import connect
from dra_driver.loops.publisher import Publisher, PublisherTiming, PublishState
from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import Inventory
from dra_driver.model.pool import Pool
from dra_driver.plan.slices import PublishMode
from dra_driver.state.current import Current
from tests import builders
from tests.contract.kube_suite import RealClock
from tests.fakes.recorder import FakeRecorder
from tests.unit.publishing import abilities, options, pool_of

FAST = PublisherTiming(
    settle_s=0.05,
    kick_s=0.05,
    recheck_s=0.3,
    retry_first_s=0.05,
    retry_cap_s=0.4,
    refused_first_s=0.1,
    refused_s=0.5,
    watch_s=60.0,
    distrust_s=60.0,
)


def node(count: int) -> Inventory:
    return builders.inventory(*(builders.gpu(number) for number in range(count)))


def wait_until(condition: Callable[[], object], *, timeout_s: float = 15.0) -> None:
    """Poll until the condition holds."""
    end = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s} s in vain"
        pause.wait(0.01)


@dataclass(kw_only=True)
class Running:
    """Publishes while it is entered; changes of its fields take effect at the next pass."""

    kubeconfig: Path
    inventory: Inventory | None
    name: str = builders.NODE
    timing: PublisherTiming = FAST
    mode: PublishMode = PublishMode.AUTO
    layout: str = "whole"
    in_use: frozenset[str] = frozenset()
    recorder: FakeRecorder = field(default_factory=FakeRecorder)
    errors: list[BaseException] = field(default_factory=list)

    def __enter__(self) -> Self:
        clock = RealClock()
        self._stop = Event()
        self._inventory = Current(self.inventory)
        self._api = connect(
            kubeconfig=self.kubeconfig, driver=builders.DRIVER, node=self.name, clock=clock
        )
        self.publisher = Publisher(
            slices=self._api.slices,
            probe=self._api.probe,
            inventory=self._inventory,
            build=self._build,
            driver=builders.DRIVER,
            node=self.name,
            clock=clock,
            recorder=self.recorder,
            timing=self.timing,
        )
        self._thread = Thread(target=self._run, name="publisher")
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        assert not self.errors

    def stop(self) -> float:
        """Stop; seconds it took."""
        started = time.monotonic()
        self._stop.set()
        self._thread.join(15)
        assert not self._thread.is_alive()
        self._api.close()
        return time.monotonic() - started

    def set(self, inventory: Inventory) -> None:
        self._inventory.set(inventory)

    @property
    def state(self) -> PublishState:
        return self.publisher.state.get()

    def wait_published(self, pool: Pool | None = None) -> None:
        """Wait until there is no problem, and `pool` is what was published last."""
        wait_until(
            lambda: (
                self.state.published and not self.state.problem and pool in {None, self.state.pool}
            )
        )

    def writes(self) -> int:
        return self.recorder.counted("slice_writes_total")

    def expected(self, inventory: Inventory, capability: ApiCapability) -> Pool:
        publish = options(self.mode, self.layout)
        pool = pool_of(
            inventory,
            capability,
            publish=publish,
            able=abilities(inventory),
            in_use=self.in_use,
        )
        return Pool(driver=pool.driver, name=self.name, slices=pool.slices, notes=pool.notes)

    def _build(self, inventory: Inventory, capability: ApiCapability) -> Pool:
        return self.expected(inventory, capability)

    def _run(self) -> None:
        try:
            self.publisher.run(self._stop)
        except BaseException as error:
            self.errors.append(error)
            raise
