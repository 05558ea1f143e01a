"""What a config wants of checkpoints, checked when its claim is prepared."""

from __future__ import annotations

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.config import GpuConfig
from dra_driver.model.device import Inventory
from dra_driver.model.share import CheckpointPolicy
from dra_driver.plan.checkpoint import check_support


def check_fields(where: str, config: GpuConfig, inventory: Inventory, *, enabled: bool) -> None:
    """Check what a whole GPU's config wants of checkpoints.

    Args:
        where: of the config, for the text.
        config: of the GPU.
        inventory: of the node.
        enabled: the node takes checkpoints.

    Raises:
        ClaimRejected: the node cannot promise it.
    """
    if config.restore_from is not None:
        field, value = "restoreFrom", config.restore_from
    elif config.checkpoint is CheckpointPolicy.REQUIRED:
        field, value = "checkpoint", config.checkpoint
    else:
        return
    why = "this node takes no checkpoints"
    if enabled:
        problem = check_support(inventory)
        if problem is None:
            return
        why = problem.text
    raise ClaimRejected(
        Reason.NOT_SUPPORTED,
        f"{where}: field {field}: {value} is not possible: {why}: leave it out",
    )
