"""Keeps what the kubelet is told of device health up to date, whatever the API server does."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from dra_driver.model.device import Inventory
from dra_driver.model.health import HealthRow
from dra_driver.model.pool import Pool
from dra_driver.plan.health import health_rows
from dra_driver.state.current import Current

_TICK_S = 0.2


class HealthRows:
    """Joins the published pool with the newest inventory.

    Args:
        inventory: followed; a sick GPU is told at once, even where its taint cannot be published.
        pool: what is published; None before that: the kubelet asks of no device yet.
        target: what the kubelet's streams send.
    """

    def __init__(
        self,
        *,
        inventory: Current[Inventory | None],
        pool: Callable[[], Pool | None],
        target: Current[tuple[HealthRow, ...]],
    ) -> None:
        self._inventory = inventory
        self._pool = pool
        self._target = target

    def run(self, stop: Event) -> None:
        known: tuple[Pool | None, int] = (None, -1)
        while not stop.is_set():
            version, inventory = self._inventory.wait_newer(known[1], _TICK_S)
            pool = self._pool()
            if inventory is not None and pool is not None and known != (pool, version):
                self._target.set(health_rows(pool, inventory))
            known = (pool, version)
            if self._inventory.closed:
                stop.wait()
