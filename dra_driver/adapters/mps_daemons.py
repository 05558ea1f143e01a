"""MPS control daemons as processes of this host, one for each GPU that has shares."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from signal import SIGKILL, pidfd_send_signal
from threading import Event, Lock
from time import monotonic

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.adapters.mps_control import ControlProgram
from dra_driver.adapters.mps_folders import (
    cut,
    public_folder,
    run_dir_errors,
    set_aside,
    tail,
)
from dra_driver.adapters.mps_processes import CONTROL, MpsProcess, Processes
from dra_driver.adapters.process import ChildProcess, start_process
from dra_driver.errors import AdapterError, MpsGone
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import DaemonProcess
from dra_driver.plan.mps_paths import log_folder, pipe_folder

_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MULTI_USER = ("-multiuser-server", "-M")
"""Spellings of one option: the first since release 555, the second since 580."""

_START_S = 20.0
_POLL_FIRST_S, _POLL_LONGEST_S = 0.004, 0.05
"""It answers within milliseconds; each question starts a program."""
_KILL_S = 5.0
_REAP_S = 1.0
_LOG_NAME = "control.log"
_LOG_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 2000
_LONGEST_SOCKET = 107
_LEFTOVERS = ("control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid")


class ProgramDaemons:
    """`MpsDaemons` of real daemons.

    A daemon is known by the folder of sockets in its environment, so one that another process of
    ours started is found again. Its log, which gets lines with every command, is cut when it is
    long; that is looked after in `wait`.

    Args:
        programs: where the control program is.
        program: speaks to the daemons.
        processes: of this host.
        run_dir: gets <run-dir>/mps/<gpu>/{pipe,log}; everybody may pass through.
        start_s: how long a daemon may take until it answers.
    """

    def __init__(
        self,
        programs: DriverPrograms,
        program: ControlProgram,
        processes: Processes,
        *,
        run_dir: Path,
        start_s: float = _START_S,
    ) -> None:
        self._programs = programs
        self._program = program
        self._processes = processes
        self._run_dir = run_dir
        self._start_s = start_s
        self._lock = Lock()
        self._known: dict[GpuUuid, DaemonProcess] = {}
        self._children: dict[int, ChildProcess] = {}

    def start(self, gpu: GpuUuid, *, multi_user: bool) -> DaemonProcess:
        log = self._folders(gpu)
        running = self.find(gpu)
        if running is not None:
            raise AdapterError(
                f"an MPS control daemon of GPU {gpu} runs already: process {running.pid}"
            )
        # A server that outlived its daemon keeps the GPU from the next one, and nobody rules it.
        self._end(gpu, [each.process for each in self._own(gpu)])
        for option in _MULTI_USER if multi_user else ("",):
            set_aside(log)
            child = self._launch(gpu, log, option)
            try:
                if self._answers(gpu, child):
                    return self._adopt(gpu, child)
            except AdapterError:
                child.kill()
                raise
        text = tail(log, _TAIL_BYTES) or "it said nothing"
        status = child.status()
        # A status stands for a daemon that ended by itself; else its time was over.
        child.kill()
        how = "ended" if status is not None else f"did not answer within {self._start_s:g} s"
        raise AdapterError(
            f"the MPS control daemon of GPU {gpu} {how}"
            f"{f' (status {status})' if status is not None else ''}: {text}"
        )

    def find(self, gpu: GpuUuid) -> DaemonProcess | None:
        self._reap()
        with self._lock:
            known = self._known.get(gpu)
        if known is not None and self._processes.runs(known):
            return known
        daemons = (each.process for each in self._own(gpu) if each.program == CONTROL)
        found = next(daemons, None)
        with self._lock:
            if found is None:
                self._known.pop(gpu, None)
            else:
                self._known[gpu] = found
        return found

    def foreign(self, gpu: GpuUuid) -> tuple[int, ...]:
        return tuple(
            sorted(
                each.process.pid
                for each in self._processes.mps()
                if self._may_use(each.environment, gpu)
            )
        )

    def kill(self, gpu: GpuUuid) -> None:
        # The daemon first: it is the oldest, and would start a server anew.
        self._end(gpu, [each.process for each in self._own(gpu)])
        with self._lock:
            self._known.pop(gpu, None)
        folder = Path(pipe_folder(str(self._run_dir), gpu))
        for name in _LEFTOVERS:
            with run_dir_errors(f"remove {folder / name}"):
                (folder / name).unlink(missing_ok=True)

    def wait(self, known: Mapping[GpuUuid, DaemonProcess], timeout_s: float) -> tuple[GpuUuid, ...]:
        for gpu in known:
            cut(Path(log_folder(str(self._run_dir), gpu)) / _LOG_NAME, above=_LOG_BYTES)
        descriptors: dict[int, GpuUuid] = {}
        ended = set()
        try:
            for gpu, process in known.items():
                descriptor = self._opened(process)
                if descriptor is None:
                    ended.add(gpu)
                else:
                    descriptors[descriptor] = gpu
            ready = _readable(descriptors, 0.0 if ended else timeout_s)
            ended.update(descriptors[each] for each in ready)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self._reap()
        return tuple(sorted(ended))

    def _folders(self, gpu: GpuUuid) -> Path:
        """Make the GPU's folders and give the file for its log."""
        pipes, logs = (
            Path(folder(str(self._run_dir), gpu)) for folder in (pipe_folder, log_folder)
        )
        if len(os.fsencode(pipes / "control_privileged")) > _LONGEST_SOCKET:
            raise AdapterError(
                f"--run-dir {self._run_dir} is too long for sockets of MPS daemons: choose a"
                " shorter one",
                permanent=True,
            )
        public_folder(pipes, below=self._run_dir)
        public_folder(logs, below=self._run_dir)
        return logs / _LOG_NAME

    def _launch(self, gpu: GpuUuid, log: Path, option: str) -> ChildProcess:
        run_dir = str(self._run_dir)
        child = start_process(
            [str(self._programs.control()), "-f", *([option] if option else [])],
            name=f"the MPS control daemon of GPU {gpu}",
            log=log,
            environment={
                **self._programs.environment(),
                _VISIBLE: gpu,
                _PIPES: pipe_folder(run_dir, gpu),
                "CUDA_MPS_LOG_DIRECTORY": log_folder(run_dir, gpu),
            },
            session=True,
        )
        with self._lock:
            self._children[child.pid] = child
        return child

    def _answers(self, gpu: GpuUuid, child: ChildProcess) -> bool:
        end_s = monotonic() + self._start_s
        pause, pause_s = Event(), _POLL_FIRST_S
        while child.status() is None and monotonic() < end_s:
            with suppress(MpsGone):
                self._program.ask(gpu, ("get_default_active_thread_percentage",))
                return child.status() is None
            pause.wait(pause_s)
            pause_s = min(2 * pause_s, _POLL_LONGEST_S)
        return False

    def _adopt(self, gpu: GpuUuid, child: ChildProcess) -> DaemonProcess:
        started = self._processes.started(child.pid)
        if started is None:
            raise AdapterError(f"the MPS control daemon of GPU {gpu} ended as soon as it answered")
        process = DaemonProcess(pid=child.pid, started=started)
        with self._lock:
            self._known[gpu] = process
        return process

    def _own(self, gpu: GpuUuid) -> Iterator[MpsProcess]:
        folder = pipe_folder(str(self._run_dir), gpu)
        for each in self._processes.mps():
            if each.environment is not None and each.environment.get(_PIPES) == folder:
                yield each

    def _may_use(self, environment: Mapping[str, str] | None, gpu: GpuUuid) -> bool:
        """Whether a process with this environment is not ours and may use the GPU."""
        if environment is None:
            return True
        if environment.get(_PIPES, "").startswith(f"{self._run_dir}/mps/"):
            return False
        visible = environment.get(_VISIBLE)
        if visible is None:
            return True
        names = [name.strip() for name in visible.split(",") if name.strip()]
        # A UUID may be cut to what is unique; an index depends on an order that is not known here.
        return any(name.isdecimal() or gpu.startswith(name) for name in names)

    def _end(self, gpu: GpuUuid, processes: Iterable[DaemonProcess]) -> None:
        """Kill exactly these, and wait until all of their threads are gone."""
        end_s = monotonic() + _KILL_S
        with ExitStack() as descriptors:
            killed = []
            for process in processes:
                descriptor = self._opened(process)
                if descriptor is not None:
                    descriptors.callback(os.close, descriptor)
                    _kill(descriptor, process)
                    killed.append((descriptor, process))
            for descriptor, process in killed:
                if not _readable([descriptor], max(0.0, end_s - monotonic())):
                    raise AdapterError(
                        f"MPS process {process.pid} of GPU {gpu} was killed, but does not end: the"
                        " GPU driver may hold it; look into the kernel's log"
                    )
        self._reap()

    def _opened(self, process: DaemonProcess) -> int | None:
        """A descriptor of this very process; None: it has ended."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return None
        if self._processes.runs(process):
            return descriptor
        os.close(descriptor)
        return None

    def _reap(self) -> None:
        """Take the exit statuses of children, which stay in the table of processes until then."""
        with self._lock:
            for pid, child in list(self._children.items()):
                if self._processes.started(pid) is None:
                    # Its first thread has ended, the others are about to.
                    with suppress(AdapterError):
                        child.wait(_REAP_S)
                if child.status() is not None:
                    del self._children[pid]


def _kill(descriptor: int, process: DaemonProcess) -> None:
    try:
        with suppress(ProcessLookupError):
            pidfd_send_signal(descriptor, SIGKILL)
    except PermissionError as error:
        raise AdapterError(f"cannot end MPS process {process.pid}: {error.strerror}") from error


def _readable(descriptors: Iterable[int], timeout_s: float) -> list[int]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(timeout_s * 1000)]
