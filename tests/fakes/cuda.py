"""CUDA state of processes in memory."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from dra_driver.errors import AdapterError, CudaFailed, OutOfTime
from dra_driver.model.cuda import CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaCall:
    """One call of the port; `mapping` of a restore."""

    action: str
    process: ProcessRef
    mapping: tuple[DeviceMapping, ...] = ()


_MOVES = {
    "lock": (CudaState.RUNNING, CudaState.LOCKED),
    "checkpoint": (CudaState.LOCKED, CudaState.CHECKPOINTED),
    "restore": (CudaState.CHECKPOINTED, CudaState.LOCKED),
    "unlock": (CudaState.LOCKED, CudaState.RUNNING),
}


class FakeCuda:
    """`CudaProcesses` whose processes a test adds, moves and ends.

    Faults are spelled as those of `tests.fakes.cuda_processes`: "fail 304", "fail 304 3" (which
    leaves it in state 3, FAILED), "hang", "crash", and for a lock "busy". Actions are the methods'
    names.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._states: dict[ProcessRef, CudaState | None] = {}
        self._faults: dict[tuple[str, ProcessRef | None], str] = {}
        self._calls: list[CudaCall] = []

    def add(self, process: ProcessRef, state: CudaState | None = CudaState.RUNNING) -> ProcessRef:
        """Add a process or move it; None: it does not use CUDA."""
        with self._lock:
            self._states[process] = state
        return process

    def end(self, process: ProcessRef) -> None:
        with self._lock:
            del self._states[process]

    def fault(self, action: str, words: str, *, process: ProcessRef | None = None) -> None:
        """What becomes of an action from now on, of one process or of all; "": nothing special."""
        with self._lock:
            self._faults[action, process] = words

    def calls(self) -> tuple[CudaCall, ...]:
        with self._lock:
            return tuple(self._calls)

    def state_of(self, process: ProcessRef) -> CudaState | None:
        with self._lock:
            return self._states[process]

    def state(self, process: ProcessRef, deadline: Deadline) -> CudaState | None:
        with self._lock:
            self._begin("state", process)
            return self._states[process]

    def lock(self, process: ProcessRef, deadline: Deadline) -> None:
        self._move("lock", process)

    def checkpoint(self, process: ProcessRef, deadline: Deadline) -> None:
        self._move("checkpoint", process)

    def restore(
        self, process: ProcessRef, mapping: tuple[DeviceMapping, ...], deadline: Deadline
    ) -> None:
        self._move("restore", process, mapping)

    def unlock(self, process: ProcessRef, deadline: Deadline) -> None:
        self._move("unlock", process)

    def _move(
        self, action: str, process: ProcessRef, mapping: tuple[DeviceMapping, ...] = ()
    ) -> None:
        with self._lock:
            self._begin(action, process, mapping)
            before, after = _MOVES[action]
            if self._states[process] is not before:
                raise CudaFailed(f"{action} gives CUDA_ERROR_ILLEGAL_STATE (401)")
            self._states[process] = after

    def _begin(
        self, action: str, process: ProcessRef, mapping: tuple[DeviceMapping, ...] = ()
    ) -> None:
        self._calls.append(CudaCall(action=action, process=process, mapping=mapping))
        if process not in self._states:
            raise AdapterError(f"process {process.pid} has ended", permanent=True)
        word, *numbers = self._words(action, process)
        if numbers[1:]:
            self._states[process] = tuple(CudaState)[int(numbers[1])]
        if word in ("hang", "busy"):
            raise OutOfTime(f"{action} did not end in time")
        if word == "crash":
            raise CudaFailed(f"the helper was ended by SIGSEGV in {action}")
        if word == "fail":
            raise CudaFailed(f"{action} gives error {numbers[0]}")

    def _words(self, action: str, process: ProcessRef) -> list[str]:
        words = self._faults.get((action, process)) or self._faults.get((action, None))
        return words.split() if words else [""]
