"""What is published of an inventory, while the supervisor of shares comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dra_driver.errors import AdapterError
from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.pool import Pool
from dra_driver.model.record import Record
from dra_driver.model.share import ShareAbility
from dra_driver.plan.held import held_whole, kept_shared
from dra_driver.plan.slices import PublishOptions, build_pool
from dra_driver.ports import Clock, ShareSupervisor


class PoolBuilder:
    """Builds pools; called on the publisher's thread alone.

    Args:
        held: all records of claims.
        burst_allowed: what is said of GPUs while nobody can tell what sharing promises.
        patience_s: how long the first pool waits for a supervisor that does not answer: on a new
            node it starts together with this process. After that, GPUs are offered whole.
        checkpointable: whether containers on GPUs of an inventory can be checkpointed now.
    """

    def __init__(
        self,
        supervisor: ShareSupervisor,
        *,
        options: PublishOptions,
        held: Callable[[], tuple[Record, ...]],
        burst_allowed: bool,
        clock: Clock,
        patience_s: float,
        checkpointable: Callable[[Inventory], bool] = lambda _: False,
    ) -> None:
        self._supervisor = supervisor
        self._options = options
        self._held = held
        self._burst_allowed = burst_allowed
        self._clock = clock
        self._checkpointable = checkpointable
        self._patient_until_s = clock.monotonic_s() + patience_s
        self._known: dict[GpuUuid, ShareAbility] = {}

    def build(self, inventory: Inventory, capability: ApiCapability) -> Pool:
        """Give the pool.

        Raises:
            AdapterError: it is not known yet what sharing can promise, or the journal cannot be
                read.
        """
        records = self._held()
        return build_pool(
            inventory,
            kept_shared(inventory, self._abilities(inventory), records),
            capability=capability,
            options=replace(self._options, checkpointable=self._checkpointable(inventory)),
            in_use=frozenset(use.device for record in records for use in record.uses),
            held_whole=held_whole(records),
        )

    def _abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        try:
            abilities = self._supervisor.abilities(inventory)
        except AdapterError as error:
            if not self._known and self._clock.monotonic_s() < self._patient_until_s:
                raise
            return tuple(
                self._known.get(gpu.uuid) or self._unknown(gpu.uuid, str(error))
                for gpu in inventory.gpus
            )
        self._known = {ability.gpu: ability for ability in abilities}
        return abilities

    def _unknown(self, gpu: GpuUuid, why: str) -> ShareAbility:
        return ShareAbility(
            gpu=gpu,
            tier=None,
            burst_allowed=self._burst_allowed,
            reason=f"unknown whether it can be shared: {why}",
        )
