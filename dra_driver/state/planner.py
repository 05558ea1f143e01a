"""From a claim as raw JSON to its plan, with the node as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dra_driver.errors import AdapterError, NotReady, Reason
from dra_driver.model.checkpoint import Operation
from dra_driver.model.claim import Claim, ClaimRef
from dra_driver.model.device import Inventory
from dra_driver.model.plan import PreparePlan
from dra_driver.model.share import ShareAbility
from dra_driver.plan.claims import parse_claim
from dra_driver.plan.decisions import shared_gpus
from dra_driver.plan.prepare import PrepareOptions, plan_prepare
from dra_driver.ports import DriverFiles, Json, ShareSupervisor
from dra_driver.state.current import Current


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTerms:
    """What the checkpoint hook offers to claims now.

    Attributes:
        enabled: containers can be checkpointed on this node.
        hook: path of the program gpuslice-hook on the host, where it can be relied on.
        operations: of the hook, by id; raises AdapterError.
    """

    enabled: Callable[[], bool]
    hook: Callable[[], str | None]
    operations: Callable[[], Mapping[str, Operation]]


class Planner:
    """Collects what deciding about a claim needs; changes nothing.

    Args:
        options: of the node.
        inventory: as last read; None while there is no GPU driver.
        supervisor: asked only about claims for a part of a GPU.
        driver_files: of the GPU driver.
        checkpoints: None: nobody takes any.
    """

    def __init__(
        self,
        *,
        options: PrepareOptions,
        inventory: Current[Inventory | None],
        supervisor: ShareSupervisor,
        driver_files: DriverFiles,
        checkpoints: CheckpointTerms | None = None,
    ) -> None:
        self._options = options
        self._inventory = inventory
        self._supervisor = supervisor
        self._driver_files = driver_files
        self._checkpoints = checkpoints

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
            options=self._options_now(),
            inventory=inventory,
            abilities=abilities,
            driver_edits=edits,
            operations=self._operations(claim),
        )

    def _options_now(self) -> PrepareOptions:
        options = self._options
        if self._checkpoints is None:
            return options
        enabled, hook = self._checkpoints.enabled(), self._checkpoints.hook()
        if (enabled, hook) != (options.checkpoints, options.hook):
            options = self._options = replace(options, checkpoints=enabled, hook=hook)
        return options

    def _operations(self, claim: Claim) -> Mapping[str, Operation]:
        # They may have to be read, and hardly any claim wants to know.
        wanted = any("restoreFrom" in entry.parameters for entry in claim.configs)
        if self._checkpoints is None or not wanted:
            return {}
        try:
            return self._checkpoints.operations()
        except AdapterError as e:
            raise NotReady(
                Reason.STEP_FAILED, f"claim {claim.ref}: checkpoints are not known: {e}"
            ) from e

    def _abilities(self, claim: Claim, inventory: Inventory) -> tuple[ShareAbility, ...]:
        # A whole GPU must not fail because the supervisor of shares is away.
        shared = shared_gpus(claim, inventory)
        if not shared:
            return ()
        try:
            return self._supervisor.abilities(replace(inventory, gpus=shared, health=()))
        except AdapterError as e:
            raise NotReady(
                Reason.STEP_FAILED,
                f"claim {claim.ref}: what sharing can promise is not known: {e}",
            ) from e
