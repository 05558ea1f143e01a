"""Settings of MPS control daemons, by the one program that speaks to them.

Commands are put together from numbers alone, never from text. The device is always ordinal 0 of a
daemon that has one GPU: up to release 555 a UUID is read as ordinal 0 with a wrong value, which
removes the limit in silence. Memory is written as a positive number of MiB: "0M" and anything that
is not understood remove the limit too, and 512K is read as 512 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from threading import Event
from time import monotonic

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_replies import check_limits, memory_of, percent_of, reply_lines
from dra_driver.adapters.process import run_program
from dra_driver.errors import MpsGone, MpsHung, MpsUnverified
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import MpsLimits
from dra_driver.plan.mps_paths import pipe_folder

_TIMEOUT_S = 5.0
_GONE_POLL_S = 0.02


class ControlProgram:
    """Runs nvidia-cuda-mps-control; one short-lived process for each call.

    Args:
        programs: where it is.
        run_dir: has the daemons' folders of sockets.
        timeout_s: for calls that name none; a daemon that takes longer is wedged.
    """

    def __init__(
        self, programs: DriverPrograms, *, run_dir: Path, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self._programs = programs
        self._run_dir = str(run_dir)
        self.timeout_s = timeout_s

    def ask(
        self, gpu: GpuUuid, commands: Sequence[str], timeout_s: float | None = None
    ) -> tuple[str, ...]:
        """Send commands in one go and give the lines of all replies.

        Raises:
            AdapterError: and its kinds, as `reply_lines` says; MpsHung: no end within the time.
        """
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        folder = pipe_folder(self._run_dir, gpu)
        done = run_program(
            [str(self._programs.control())],
            name="nvidia-cuda-mps-control",
            environment={**self._programs.environment(), "CUDA_MPS_PIPE_DIRECTORY": folder},
            timeout_s=limit_s,
            text="".join(f"{command}\n" for command in commands),
        )
        if done.status is None:
            raise MpsHung(
                f"the MPS control daemon of GPU {gpu} gave no answer to {commands[0].split()[0]}"
                f" within {limit_s:g} s"
            )
        return reply_lines(
            status=done.status, output=done.output, errors=done.errors, daemon=f"GPU {gpu}"
        )


class ProgramControl:
    """`MpsControl` of real daemons.

    A memory ceiling can be replaced, never taken away: no command that does is ever written, so
    limits without one leave what is set, and are unverified where something is.
    """

    def __init__(self, program: ControlProgram) -> None:
        self._program = program

    def limits(self, gpu: GpuUuid) -> MpsLimits:
        lines = self._program.ask(
            gpu,
            ("get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"),
        )
        percent, memory = _parsed(lines[:1], lines[1:2], gpu)
        return MpsLimits(compute_percent=int(percent), memory_mib=memory)

    def set_limits(self, gpu: GpuUuid, limits: MpsLimits, server: int | None) -> None:
        check_limits(limits)
        self._set(gpu, limits, "default_", "")
        if server is not None:
            self._set(gpu, limits, "", f" {int(server)}")

    def quit(self, gpu: GpuUuid, *, force_after_s: float) -> None:
        force_s = max(1, ceil(force_after_s))
        try:
            self._program.ask(gpu, (f"quit -t {force_s}",), self._program.timeout_s + force_s)
        except MpsGone:
            return
        self._await_end(gpu)

    def _await_end(self, gpu: GpuUuid) -> None:
        end_s = monotonic() + self._program.timeout_s
        pause = Event()
        while monotonic() < end_s:
            try:
                self._program.ask(gpu, ("get_default_active_thread_percentage",))
            except MpsGone:
                return
            pause.wait(_GONE_POLL_S)
        raise MpsHung(f"the MPS control daemon of GPU {gpu} took the command to quit, but runs on")

    def _set(self, gpu: GpuUuid, limits: MpsLimits, kind: str, server: str) -> None:
        """Set both ceilings and read them back, in one process."""
        percent, memory = limits.compute_percent, limits.memory_mib
        commands = [f"set_{kind}active_thread_percentage{server} {percent}"]
        if memory is not None:
            commands.append(f"set_{kind}device_pinned_mem_limit{server} 0 {memory}M")
        commands.append(f"get_{kind}active_thread_percentage{server}")
        commands.append(f"get_{kind}device_pinned_mem_limit{server} 0")
        lines = self._program.ask(gpu, commands)
        # The set of a percentage answers with what holds then, the set of memory with nothing.
        _verify(limits, lines[1:2], lines[2:], f"{'server' + server if server else 'GPU ' + gpu}")


def _verify(
    limits: MpsLimits, percent: tuple[str, ...], memory: tuple[str, ...], whose: str
) -> None:
    if not percent or percent_of(percent[0]) != limits.compute_percent:
        raise MpsUnverified(
            f"the MPS daemon holds {percent[0] if percent else 'no'} % of compute for {whose}"
            f" where {limits.compute_percent} % was set"
        )
    found = memory_of(memory[-1]) if memory else None
    wanted = limits.memory_mib
    if found is None and wanted is None:
        return
    if found is None or wanted is None or not found.is_of(wanted):
        raise MpsUnverified(
            f"the MPS daemon holds {memory[-1] if memory else 'no limit'} of memory for {whose}"
            f" where {'no limit' if wanted is None else f'{wanted} MiB'} was set"
        )


def _parsed(
    percent: tuple[str, ...], memory: tuple[str, ...], gpu: GpuUuid
) -> tuple[float, int | None]:
    if not percent:
        raise MpsUnverified(f"the MPS control daemon of GPU {gpu} tells no percentage")
    return percent_of(percent[0]), memory_of(memory[0]).mib if memory else None
