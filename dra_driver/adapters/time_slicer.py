"""Time slices of real GPUs, set by nvidia-smi: NVML has no call for them.

Source: `nvidia-smi compute-policy --help` (since driver 455) and nvidia-smi(1), "RETURN VALUE". A
board without the setting answers "… : Not Supported" with status 3, and some releases tell failures
in their text alone. The setting is the whole GPU's, and lost at a reboot.
"""

from __future__ import annotations

from collections.abc import Mapping

from dra_driver.adapters.process import Finished, run_program
from dra_driver.errors import AdapterError, NotFound
from dra_driver.model.device import GpuUuid
from dra_driver.model.share import TimeSlice

_NUMBERS: Mapping[TimeSlice, int] = {
    TimeSlice.DEFAULT: 0,
    TimeSlice.SHORT: 1,
    TimeSlice.MEDIUM: 2,
    TimeSlice.LONG: 3,
}
_INVALID_ARGUMENT, _NOT_SUPPORTED, _NO_PERMISSION, _NOT_IMPLEMENTED = 2, 3, 4, 13
_NO_GPU = (6, 15)
"""The GPU was not found; it has fallen off the bus."""
_PERMANENT = (_INVALID_ARGUMENT, _NOT_SUPPORTED, _NOT_IMPLEMENTED)
_NO_SUCH_SETTING = "this board has no such setting: leave timeSlice out of the claim's config"
_WAYS_OUT: Mapping[int, str] = {
    _INVALID_ARGUMENT: "this release of it has no compute-policy: install GPU driver 455 or later, "
    "or leave timeSlice out of the claim's config",
    _NOT_SUPPORTED: _NO_SUCH_SETTING,
    _NO_PERMISSION: "run the plugin as root in a privileged container",
    _NOT_IMPLEMENTED: _NO_SUCH_SETTING,
}
_SHOWN_CHARACTERS = 300


class NvidiaSmi:
    """`TimeSlicer` by nvidia-smi.

    Args:
        program: its path.
        environment: the whole of the program's.
        timeout_s: how long a call may take.
    """

    def __init__(
        self, program: str, *, environment: Mapping[str, str], timeout_s: float = 10.0
    ) -> None:
        self._program = program
        self._environment = environment
        self._timeout_s = timeout_s

    def set_interval(self, gpu: GpuUuid, interval: TimeSlice) -> None:
        """Set the interval of a GPU.

        Raises:
            NotFound: there is no such GPU (any more).
            AdapterError: permanent where neither board nor driver know such a setting.
        """
        finished = run_program(
            [
                self._program,
                "compute-policy",
                "-i",
                gpu,
                f"--set-timeslice={_NUMBERS[interval]}",
            ],
            name="nvidia-smi",
            environment=self._environment,
            timeout_s=self._timeout_s,
        )
        said = " ".join(f"{finished.output}\n{finished.errors}".split())
        if finished.status == 0 and not _tells_failure(said):
            return
        raise self._error(gpu, interval, finished, said)

    def _error(
        self, gpu: GpuUuid, interval: TimeSlice, finished: Finished, said: str
    ) -> AdapterError:
        told = f": {said[:_SHOWN_CHARACTERS]}" if said else ""
        what = f"nvidia-smi cannot set the time slice of GPU {gpu} to {interval}"
        if finished.status is None:
            return AdapterError(
                f"{what}: {self._program} did not end within {self._timeout_s:g} s{told}; look at "
                "the kernel's log (dmesg) for errors of the GPU, it is tried again"
            )
        ended = f"{what} (status {finished.status}){told}"
        status = _NOT_SUPPORTED if "not supported" in said.lower() else finished.status
        if status in _NO_GPU:
            return NotFound(f"{ended}; the GPU is not there: repair or reset it")
        way_out = _WAYS_OUT.get(status, "it is tried again")
        return AdapterError(f"{ended}; {way_out}", permanent=status in _PERMANENT)


def _tells_failure(said: str) -> bool:
    return any(word in said.lower() for word in ("failed", "not supported", "unable"))
