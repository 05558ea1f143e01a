"""What happens to an operation of the checkpoint hook, and what it asks to be done.

Every effect but `TellPod` is answered by an event. All may be done again: whoever does them looks
at the state of a process first, and leaves one alone that is not in the state to begin from.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.model.checkpoint import Code, Outcome
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why something was not done; a text that can be shown."""

    code: Code
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """A process as it was seen; None: it has ended, or does not use CUDA."""

    process: ProcessRef
    state: CudaState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed, or the driver has come back: go on with what is pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Answers `Look`.

    Attributes:
        states: of those processes that could be looked at.
        busy: the runtime still works on the container, or it is frozen: what is seen may change
            without us, and nothing may be done.
        problem: why some could not be looked at.
    """

    states: tuple[ProcessState, ...] = ()
    busy: bool = False
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Answers an effect that moves processes; attributes as of `Seen`, after the move."""

    states: tuple[ProcessState, ...] = ()
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The caller tells what came of the dump or the restore."""

    outcome: Outcome
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerEnded:
    """The process that dumped or restored ended; what came of it was not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """Somebody gives it up.

    Attributes:
        acknowledge: a person answers for the container, where it was left with broken GPU state;
            of no meaning before it has ended.
    """

    text: str
    acknowledge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """Answers `KillContainer`."""

    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebooted:
    """The node was restarted: no process of then is there any more."""


Event = Tick | Seen | Moved | Finished | RunnerEnded | Aborted | Killed | Rebooted


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Look at the CUDA state: at a checkpoint of its processes, at a restore of all there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockProcesses:
    """From RUNNING to LOCKED; all in the order given, up to the first failure. So are the others.

    Others: CHECKPOINTED is from LOCKED; restoring is back to LOCKED, unlocking back to RUNNING.
    """

    processes: tuple[ProcessRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointProcesses:
    processes: tuple[ProcessRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreProcesses:
    """`mapping` names every GPU that the processes could see; empty: the same GPUs."""

    processes: tuple[ProcessRef, ...]
    mapping: tuple[DeviceMapping, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockProcesses:
    processes: tuple[ProcessRef, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KillContainer:
    """End all processes of the container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellPod:
    """Let users read it: an Event about the pod."""

    reason: str
    text: str


Move = LockProcesses | CheckpointProcesses | RestoreProcesses | UnlockProcesses
Effect = Move | Look | KillContainer | TellPod
