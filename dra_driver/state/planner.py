"""From a claim as raw JSON to its plan, with the node as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dra_driver.errors import AdapterError, NotReady, Reason
from dra_driver.model.checkpoint import Operation
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.device import Inventory
from dra_driver.model.plan import PreparePlan
from dra_driver.model.share import ShareAbility
from dra_driver.plan.claims import parse_claim
from dra_driver.plan.decisions import needs_abilities
from dra_driver.plan.prepare import PrepareOptions, plan_prepare
from dra_driver.ports import DriverFiles, Json, ShareSupervisor
from dra_driver.state.current import Current


class Planner:
    """Collects what deciding about a claim needs; changes nothing.

    Args:
        options: of the node.
        inventory: as last read; None while there is no GPU driver.
        supervisor: asked only about claims for a part of a GPU.
        driver_files: of the GPU driver.
        operations: of the checkpoint hook, by id.
    """

    def __init__(
        self,
        *,
        options: PrepareOptions,
        inventory: Current[Inventory | None],
        supervisor: ShareSupervisor,
        driver_files: DriverFiles,
        operations: Callable[[], Mapping[str, Operation]] = dict,
    ) -> None:
        self._options = options
        self._inventory = inventory
        self._supervisor = supervisor
        self._driver_files = driver_files
        self._operations = operations

    def plan(self, obj: Json, ref: ClaimRef) -> PreparePlan:
        """Plan the claim that the API server gave for `ref`.

        Raises:
            ClaimRejected: the claim has to change.
            NotReady: the claim is not allocated, or the node is not ready for it.
        """
        claim = parse_claim(obj, ref, driver=self._options.driver, node=self._options.node)
        inventory = self._inventory.get()
        if inventory is None:
            raise NotReady(
                Reason.DRIVER_NOT_LOADED,
                f"claim {ref}: the GPU driver of node {self._options.node} is not loaded yet: "
                "install it or wait for it (nvidia-smi shows whether it is there), the call is "
                "repeated",
            )
        abilities = self._abilities(claim, inventory)
        try:
            edits = self._driver_files.edits(inventory)
        except AdapterError as e:
            raise NotReady(
                Reason.STEP_FAILED, f"claim {ref}: the GPU driver's files are not known: {e}"
            ) from e
        return plan_prepare(
            claim,
            options=self._options,
            inventory=inventory,
            abilities=abilities,
            driver_edits=edits,
            operations=self._operations(),
        )

    def _abilities(self, claim: Claim, inventory: Inventory) -> tuple[ShareAbility, ...]:
        # A whole GPU must not fail because the supervisor of shares is away.
        if not needs_abilities(claim, inventory):
            return ()
        try:
            return self._supervisor.abilities(inventory)
        except AdapterError as e:
            raise NotReady(
                Reason.STEP_FAILED,
                f"claim {claim.ref}: what sharing can promise is not known: {e}",
            ) from e
