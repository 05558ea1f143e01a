"""A checkpoint or a restore of one container, as the hook sees it.

What the edges decode to, what the decisions answer, and what is kept of it across restarts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from dra_driver.model.claim import ClaimRef
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.manifest import Manifest, Mismatch


class Kind(StrEnum):
    CHECKPOINT = "Checkpoint"
    RESTORE = "Restore"


class HookPhase(StrEnum):
    """Which call of the hook; the first two belong to a checkpoint."""

    PRE_CHECKPOINT = "PreCheckpoint"
    POST_CHECKPOINT = "PostCheckpoint"
    PRE_RESTORE = "PreRestore"
    POST_RESTORE = "PostRestore"

    @property
    def kind(self) -> Kind:
        checkpoint = self in (HookPhase.PRE_CHECKPOINT, HookPhase.POST_CHECKPOINT)
        return Kind.CHECKPOINT if checkpoint else Kind.RESTORE


class Trigger(StrEnum):
    """Who calls. The runtime's calls join the operation that a controller began on a container."""

    CRIU_SCRIPT = "CriuScript"
    OCI_HOOK = "OciHook"
    CONTROLLER = "Controller"


class GpuOwner(StrEnum):
    """Who moves CUDA processes between their states: one of them in an operation, never both.

    AUTO: to be decided. DRIVER: this driver. CRIU_PLUGIN: CRIU's CUDA plugin, while the container
    is frozen. NONE: no process uses CUDA, or the caller gives its GPU state up.
    """

    AUTO = "Auto"
    DRIVER = "Driver"
    CRIU_PLUGIN = "CriuPlugin"
    NONE = "None"


class AfterCheckpoint(StrEnum):
    """What becomes of the container whose checkpoint succeeded."""

    LEAVE_RUNNING = "LeaveRunning"
    STOP = "Stop"


class Outcome(StrEnum):
    """What the caller says of the dump or the restore itself."""

    UNKNOWN = "Unknown"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Code(StrEnum):
    """Verdict on a call; names as gRPC's.

    INVALID_ARGUMENT: malformed, or an id used again for something else. NOT_FOUND: no such
    operation or container. FAILED_PRECONDITION: it can never work so. RESOURCE_EXHAUSTED: the
    node lacks memory for it. ABORTED: another operation is under way on this container.
    DEADLINE_EXCEEDED: a transition took too long. UNAVAILABLE: try again. DATA_LOSS: the CUDA state
    of a process is lost. UNIMPLEMENTED: this GPU driver cannot do it. INTERNAL: a bug.
    """

    OK = "OK"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    NOT_FOUND = "NOT_FOUND"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    ABORTED = "ABORTED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"


class OperationState(StrEnum):
    """How far an operation is; `plan.operations` has the picture."""

    PREPARING = "Preparing"
    LOCKED = "Locked"
    GPU_CHECKPOINTED = "GpuCheckpointed"
    CHECKED = "Checked"
    DELEGATED = "Delegated"
    CAPTURED = "Captured"
    GPU_RESTORING = "GpuRestoring"
    VERIFYING = "Verifying"
    ROLLING_BACK = "RollingBack"
    KILLING = "Killing"
    DONE = "Done"
    EXPIRED = "Expired"
    FAILED_CLEAN = "FailedClean"
    FAILED_UNHEALTHY = "FailedUnhealthy"
    FAILED_KILLED = "FailedKilled"

    @property
    def final(self) -> bool:
        return self in _FINAL


_FINAL = frozenset(
    (
        OperationState.DONE,
        OperationState.EXPIRED,
        OperationState.FAILED_CLEAN,
        OperationState.FAILED_UNHEALTHY,
        OperationState.FAILED_KILLED,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A container; what is empty or None is not known.

    Attributes:
        init: its first process, as the host counts.
    """

    container_id: str = ""
    pod_uid: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    container_name: str = ""
    init: ProcessRef | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRequest:
    """One call of the hook, from whichever edge.

    Attributes:
        operation_id: given by controllers; derived for the runtime's calls.
        claims: UIDs that the caller knows of, sorted; others are found.
        accept_host_only: take a checkpoint without the state on the GPU.
        checkpoint_id: of PreRestore: the checkpoint operation that it restores.
        runner: the process that dumps or restores, where the caller knows it: with its end the
            dump has ended.
        lease_s: None: the default.
        dry_run: only tell whether it would work.
    """

    operation_id: str
    phase: HookPhase
    trigger: Trigger
    target: Target = field(default_factory=Target)
    claims: tuple[str, ...] = ()
    owner: GpuOwner = GpuOwner.AUTO
    after: AfterCheckpoint = AfterCheckpoint.LEAVE_RUNNING
    accept_host_only: bool = False
    checkpoint_id: str = ""
    runner: ProcessRef | None = None
    outcome: Outcome = Outcome.UNKNOWN
    outcome_text: str = ""
    lease_s: float | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldProcess:
    """A process that uses CUDA.

    Attributes:
        found: its state when the operation began, to which it is brought back.
        state: the last one that was seen; None: it has ended, or uses CUDA no more.
        gpu_bytes: what it held on its GPUs.
    """

    process: ProcessRef
    found: CudaState
    state: CudaState | None
    gpu_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """What a call was answered, to be repeated.

    Attributes:
        digest: of the request.
    """

    phase: HookPhase
    digest: str
    code: Code
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A checkpoint or restore of one container; moved on by `plan.operations.step` alone.

    Attributes:
        owner: never AUTO.
        boot_id: of the boot in which it began; its processes are gone in another one.
        until_s: when the present state ends by itself, on the monotonic clock of `boot_id`;
            of no meaning in a final state.
        started_wall_s, changed_wall_s: seconds since the epoch, for people.
        runner: see HookRequest.
        ending: the final state that ROLLING_BACK, CAPTURED and VERIFYING lead to if all goes well.
        text: why it failed: the first cause.
        answers: one for each phase that was answered, in that order.
        acknowledged: of one that ended FAILED_UNHEALTHY: a person answers for what runs on, so that
            its GPUs count as healthy.
    """

    id: str
    kind: Kind
    state: OperationState
    trigger: Trigger
    target: Target
    owner: GpuOwner
    boot_id: str
    until_s: float
    started_wall_s: float
    changed_wall_s: float
    claims: tuple[ClaimRef, ...] = ()
    after: AfterCheckpoint = AfterCheckpoint.LEAVE_RUNNING
    processes: tuple[HeldProcess, ...] = ()
    runner: ProcessRef | None = None
    checkpoint_id: str = ""
    manifest: Manifest | None = None
    device_map: tuple[DeviceMapping, ...] = ()
    outcome: Outcome = Outcome.UNKNOWN
    ending: OperationState = OperationState.DONE
    code: Code = Code.OK
    text: str = ""
    warnings: tuple[str, ...] = ()
    answers: tuple[StoredAnswer, ...] = ()
    acknowledged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HookAnswer:
    """The answer to a call.

    Attributes:
        operation: as it stands now; None: the call concerns no container of this driver, or nothing
            was begun.
        mismatches: of a refused PreRestore, by field.
        replayed: the same call was answered before; nothing was done again.
    """

    code: Code = Code.OK
    text: str = ""
    operation: Operation | None = None
    mismatches: tuple[Mismatch, ...] = ()
    warnings: tuple[str, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerMemory:
    """Host memory that a container may still take.

    Attributes:
        available_bytes: of the node.
        left_bytes: up to the container's own limit; None: it has none.
    """

    available_bytes: int
    left_bytes: int | None = None
