"""Whether a container can be checkpointed, and who takes its processes off the GPUs.

Sources: cuda-checkpoint's and CRIU's documentation: MPS, MIG and managed memory cannot be
checkpointed, lock time-outs and the driver's own interface come with driver 570, and what is on a
GPU goes to the host's memory first. A frozen process never answers a lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.model.checkpoint import (
    Code,
    ContainerMemory,
    GpuOwner,
    HeldProcess,
    HookRequest,
    Trigger,
)
from dra_driver.model.cuda import CudaState
from dra_driver.model.device import Inventory
from dra_driver.model.manifest import Manifest
from dra_driver.model.record import Record, Use
from dra_driver.model.share import CheckpointPolicy
from dra_driver.plan.manifest import build_manifest, sharing_of
from dra_driver.plan.operation_moves import refs
from dra_driver.plan.operation_values import Problem
from dra_driver.plan.tiers import driver_branch

LOWEST_BRANCH = 570
"""From this branch of the GPU driver on processes can be checkpointed in a way that is used."""

_HOST_RESERVE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """What there is to know of a container that is to be checkpointed.

    Attributes:
        records: of its claims; at least one.
        processes: that use CUDA, as they were found.
        memory: None: it is not known.
        plugin: CRIU has its CUDA plugin, and that its program.
    """

    request: HookRequest
    records: tuple[Record, ...]
    inventory: Inventory
    node: str
    processes: tuple[HeldProcess, ...] = ()
    memory: ContainerMemory | None = None
    frozen: bool = False
    plugin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    owner: GpuOwner
    manifest: Manifest
    warnings: tuple[str, ...] = ()


def decide_checkpoint(facts: CheckpointFacts) -> Admitted | Problem:
    """Admit a checkpoint, or say why it must not be taken."""
    problem = _policy(facts) or _shares(facts) or _lost(facts)
    if problem is not None:
        return problem
    owner = _owner(facts)
    if isinstance(owner, Problem):
        return owner
    problem = _memory(facts, owner)
    if problem is not None:
        return problem
    return Admitted(
        owner=owner,
        manifest=build_manifest(
            facts.records,
            facts.inventory,
            node=facts.node,
            gpu_bytes=_moved_bytes(facts),
            driver_owned=owner is GpuOwner.DRIVER,
            host_only=facts.request.accept_host_only,
        ),
        warnings=_warnings(facts, owner),
    )


def check_support(inventory: Inventory) -> Problem | None:
    """Why processes of this node's GPUs cannot be checkpointed; None where they can."""
    branch = driver_branch(inventory.driver_version)
    if branch is not None and branch >= LOWEST_BRANCH:
        return None
    version = inventory.driver_version or "of unknown version"
    return _problem(
        Code.UNIMPLEMENTED,
        f"GPU driver {version} cannot checkpoint processes: {LOWEST_BRANCH} or later is needed",
    )


def _policy(facts: CheckpointFacts) -> Problem | None:
    for record in facts.records:
        held = any(use.use is not Use.MONITOR for use in record.uses)
        if not held:
            continue
        if record.checkpoint is CheckpointPolicy.NONE:
            return _problem(
                Code.FAILED_PRECONDITION,
                f"claim {record.claim} allows no checkpoints of its containers, as a failed one can"
                " damage them: write checkpoint: BestEffort into its config",
            )
        if facts.request.accept_host_only and record.checkpoint is CheckpointPolicy.REQUIRED:
            return _problem(
                Code.FAILED_PRECONDITION,
                f"claim {record.claim} wants its GPU state in every checkpoint (checkpoint:"
                " Required), so one without it is not taken",
            )
    return None


def _shares(facts: CheckpointFacts) -> Problem | None:
    if facts.request.accept_host_only:
        return None
    for record in facts.records:
        for use in record.uses:
            sharing = sharing_of(use)
            if sharing is not None:
                return _problem(
                    Code.FAILED_PRECONDITION,
                    f"claim {record.claim} has a share of GPU {use.gpu} under {sharing}, whose GPU"
                    " state cannot be checkpointed: use a whole GPU, or accept a checkpoint"
                    " without GPU state",
                )
    return None


def _lost(facts: CheckpointFacts) -> Problem | None:
    broken = tuple(each for each in facts.processes if each.found is CudaState.FAILED)
    if not broken:
        return None
    return _problem(Code.DATA_LOSS, f"the CUDA state of {refs(broken)} is lost: restart the pod")


def _owner(facts: CheckpointFacts) -> GpuOwner | Problem:
    asked = facts.request.owner
    off = (CudaState.CHECKPOINTED,)
    if facts.request.accept_host_only or all(each.found in off for each in facts.processes):
        return GpuOwner.NONE
    if (unsupported := check_support(facts.inventory)) is not None:
        return unsupported
    if asked is GpuOwner.DRIVER or (asked is GpuOwner.AUTO and not facts.plugin):
        return _by_driver(facts)
    if not facts.plugin:
        return _problem(
            Code.FAILED_PRECONDITION,
            "CRIU has no CUDA plugin on this node: install it with the program cuda-checkpoint",
        )
    return GpuOwner.CRIU_PLUGIN


def _by_driver(facts: CheckpointFacts) -> GpuOwner | Problem:
    using = refs(facts.processes)
    if facts.request.owner is GpuOwner.AUTO and facts.request.trigger is not Trigger.CONTROLLER:
        return _problem(
            Code.FAILED_PRECONDITION,
            f"{using} use{'s' if len(facts.processes) == 1 else ''} CUDA and CRIU has no CUDA"
            " plugin: install it with the program cuda-checkpoint, or begin with `gpuslice"
            " checkpoint`",
        )
    if facts.frozen:
        return _problem(
            Code.FAILED_PRECONDITION,
            f"the container is frozen, so {using} cannot be taken off the GPU: thaw it first",
        )
    return GpuOwner.DRIVER


def _memory(facts: CheckpointFacts, owner: GpuOwner) -> Problem | None:
    needed = _moved_bytes(facts)
    if owner is GpuOwner.NONE or facts.memory is None or not needed:
        return None
    free = facts.memory.available_bytes - _HOST_RESERVE_BYTES
    if needed > free:
        return _problem(
            Code.RESOURCE_EXHAUSTED,
            f"{_mib(needed)} on the GPU have to go to the host, which has {_mib(max(0, free))}"
            " left: free memory on the node",
        )
    left = facts.memory.left_bytes
    if left is not None and needed > left:
        return _problem(
            Code.RESOURCE_EXHAUSTED,
            f"{_mib(needed)} on the GPU have to go to the container's memory, whose limit leaves"
            f" {_mib(max(0, left))}: raise the limit",
        )
    return None


def _moved_bytes(facts: CheckpointFacts) -> int:
    return sum(
        each.gpu_bytes for each in facts.processes if each.found is not CudaState.CHECKPOINTED
    )


def _warnings(facts: CheckpointFacts, owner: GpuOwner) -> tuple[str, ...]:
    if facts.request.accept_host_only:
        return ("the checkpoint has no GPU state",)
    if owner is not GpuOwner.NONE and not _moved_bytes(facts):
        return ("it is not known how much memory the processes have on the GPU",)
    return ()


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


def _problem(code: Code, text: str) -> Problem:
    return Problem(code=code, text=text)
