"""CUDA state of processes through the checkpoint API of the driver's own libcuda."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from dra_driver.adapters import cuda_helper
from dra_driver.adapters.cuda_calls import Answer, call_driver
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.process_stat import start_time
from dra_driver.errors import AdapterError, CudaFailed, OutOfTime
from dra_driver.model.cuda import MIGRATION_CUDA, CudaState, DeviceMapping, ProcessRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.ports import Clock

_INVALID_VALUE, _OUT_OF_MEMORY, _ILLEGAL_STATE, _NOT_READY, _NOT_SUPPORTED = 1, 2, 401, 600, 801
_STATES = (CudaState.RUNNING, CudaState.LOCKED, CudaState.CHECKPOINTED, CudaState.FAILED)
_DRIVER_SHARE = 0.8
"""Of the time for a lock: the helper has to start, and is to answer rather than be killed."""

_UUID = re.compile(r"GPU-([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})")
_LIBRARY = "/libcuda.so"
_DEVICES = "/dev/nvidia"
_HINTS = {
    _OUT_OF_MEMORY: "no room for its memory where that is to go; a restore that failed so may fail "
    "for ever",
    _ILLEGAL_STATE: "it is in another state than this needs",
}


class CudaCheckpoint:
    """`CudaProcesses` over libcuda, one helper process a call; safe to use from several threads.

    The driver finds a process by its pid as this process would, and talks to it through /proc: both
    have to be the host's.

    Args:
        programs: where libcuda is.
        clock: deadlines are on its monotonic time.
        proc: the host's /proc.
    """

    def __init__(
        self, programs: DriverPrograms, clock: Clock, *, proc: Path = Path("/proc")
    ) -> None:
        self._programs = programs
        self._clock = clock
        self._proc = proc

    def state(self, process: ProcessRef, deadline: Deadline) -> CudaState | None:
        self._check(process)
        if not self._may_use_cuda(process):
            return None
        answer = self._call(cuda_helper.STATE, process, deadline)
        if answer.step == cuda_helper.GET_THREAD and answer.code == _INVALID_VALUE:
            self._check(process)
            return None
        self._succeeded(answer, process)
        if answer.value is None or not 0 <= answer.value < len(_STATES):
            raise CudaFailed(
                f"{answer.step} tells of state {answer.value} of process {process.pid}, which this "
                "version does not know: try again when it is over"
            )
        return _STATES[answer.value]

    def lock(self, process: ProcessRef, deadline: Deadline) -> None:
        milliseconds = max(1, int(self._left_s(deadline) * _DRIVER_SHARE * 1000))
        self._check(process)
        answer = self._call(cuda_helper.LOCK, process, deadline, str(milliseconds))
        if answer.code == _NOT_READY:
            raise OutOfTime(
                f"{answer.step}: the GPU work of process {process.pid} did not come to an end "
                f"within {milliseconds} ms ({answer.name}): give it more time, or try again later"
            )
        self._succeeded(answer, process)

    def checkpoint(self, process: ProcessRef, deadline: Deadline) -> None:
        self._check(process)
        self._succeeded(self._call(cuda_helper.CHECKPOINT, process, deadline), process)

    def restore(
        self, process: ProcessRef, mapping: tuple[DeviceMapping, ...], deadline: Deadline
    ) -> None:
        pairs = [f"{_hex(each.old)}={_hex(each.new)}" for each in mapping]
        self._check(process)
        if pairs:
            # A driver that does not know of pairs may restore onto the old GPUs, and call it done.
            self._can_migrate(process, deadline)
        self._succeeded(self._call(cuda_helper.RESTORE, process, deadline, *pairs), process)

    def unlock(self, process: ProcessRef, deadline: Deadline) -> None:
        self._check(process)
        self._succeeded(self._call(cuda_helper.UNLOCK, process, deadline), process)

    def _call(self, action: str, process: ProcessRef, deadline: Deadline, *values: str) -> Answer:
        try:
            return call_driver(
                self._programs,
                action,
                (str(process.pid), *values),
                timeout_s=self._left_s(deadline),
                proc=self._proc,
            )
        except CudaFailed:
            # A driver that dies in a call may have taken the process with it.
            self._check(process)
            raise

    def _left_s(self, deadline: Deadline) -> float:
        return deadline.remaining_s(self._clock.monotonic_s())

    def _can_migrate(self, process: ProcessRef, deadline: Deadline) -> None:
        answer = self._call(cuda_helper.VERSION, process, deadline)
        if answer.code or answer.value is None or answer.value < MIGRATION_CUDA:
            raise AdapterError(
                f"process {process.pid} cannot be restored onto other GPUs: that needs NVIDIA "
                f"driver 580 or newer, and this one runs CUDA {_version(answer.value)}",
                permanent=True,
            )

    def _succeeded(self, answer: Answer, process: ProcessRef) -> None:
        if not answer.code:
            return
        self._check(process)
        if answer.step == cuda_helper.INIT:
            raise AdapterError(
                f"cuInit gives {answer.name} ({answer.code}) in the plugin's helper: check that "
                "the NVIDIA driver is loaded and its device nodes are there"
            )
        hint = _HINTS.get(answer.code)
        raise CudaFailed(
            f"{answer.step} gives {answer.name} ({answer.code}) for process {process.pid}"
            + (f": {hint}" if hint else ""),
            permanent=answer.code == _NOT_SUPPORTED,
        )

    def _check(self, process: ProcessRef) -> None:
        if start_time(self._proc, process.pid) != process.started:
            raise AdapterError(f"process {process.pid} has ended", permanent=True)

    def _may_use_cuda(self, process: ProcessRef) -> bool:
        """Whether to ask the driver, which takes a helper: whoever has its library or a device.

        Missed is one that took the library under another name and has no device open, as one that
        was checkpointed. What cannot be read counts as yes.
        """
        folder = self._proc / str(process.pid)
        try:
            with (folder / "maps").open(encoding="utf-8", errors="replace") as maps:
                if any(_LIBRARY in line for line in maps):
                    return True
            descriptors = list((folder / "fd").iterdir())
        except OSError:
            return True
        for each in descriptors:
            with suppress(OSError):  # closed meanwhile
                if str(each.readlink()).startswith(_DEVICES):
                    return True
        return False


def _hex(gpu: GpuUuid) -> str:
    match = _UUID.fullmatch(gpu)
    if match is None:
        raise AdapterError(
            f"cannot restore onto or from {gpu}: it is not the UUID of a whole GPU, such as "
            "GPU-01234567-89ab-cdef-0123-456789abcdef",
            permanent=True,
        )
    return match[1].replace("-", "").lower()


def _version(cuda: int | None) -> str:
    return "of an unknown version" if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
