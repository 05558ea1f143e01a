"""Keeps all GPUs as they are desired, for ever."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from dra_driver import log
from dra_driver.errors import AdapterError
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import DaemonProcess
from dra_driver.mps.gpu_state import GpuEntry
from dra_driver.mps.supervisor import Supervisor
from dra_driver.mps.tending import Tender

_WORKERS_MAX = 16
"""One for each GPU of all but the largest nodes: one that hangs must not hold up the others."""

_log = log.get(__name__)


class Keeper:
    """Looks after the GPUs of a supervisor: at start, when a daemon ends, and every few seconds.

    Args:
        supervisor: what is kept; `run` lets it recover first.
        interval_s: between two looks at one GPU.
        tick_s: how soon a stop or a retry is seen; the end of a daemon is seen at once.
        prove: prove free GPUs at the start, so that the tier is known before the first share.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        interval_s: float = 5.0,
        tick_s: float = 0.5,
        prove: bool = True,
    ) -> None:
        self._supervisor = supervisor
        self._ports = supervisor.ports
        self._tender = Tender(supervisor.ports, supervisor.table, supervisor.converger)
        self._interval_s = interval_s
        self._tick_s = tick_s
        self._prove = prove
        self._working: dict[GpuUuid, Future[None]] = {}
        self._next_s: dict[GpuUuid, float] = {}
        self._ended: dict[GpuUuid, DaemonProcess] = {}

    def run(self, stop: Event) -> None:
        """Keep until `stop`; the supervisor ends with it, daemons and shares go on.

        Raises:
            AdapterError: what is desired cannot be read, so nothing can be kept.
        """
        self._supervisor.recover()
        workers = ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="mps-keeper")
        try:
            while not stop.is_set():
                self._supervisor.show()
                self._start_due(workers)
                self._wait(stop)
        finally:
            self._supervisor.end()
            workers.shutdown()

    def _start_due(self, workers: ThreadPoolExecutor) -> None:
        now_s = self._ports.clock.monotonic_s()
        for entry in self._supervisor.table.all():
            working = self._working.get(entry.gpu)
            if working is not None:
                if not working.done():
                    continue
                working.result()  # what nobody foresaw ends the keeper, and with it the process
                del self._working[entry.gpu]
            if self._is_due(entry, now_s):
                first = entry.gpu not in self._next_s
                self._next_s[entry.gpu] = now_s + self._interval_s
                self._working[entry.gpu] = workers.submit(self._tend, entry, first=first)

    def _is_due(self, entry: GpuEntry, now_s: float) -> bool:
        if entry.failures and now_s >= entry.retry_at_s:
            return True
        return now_s >= self._next_s.get(entry.gpu, now_s)

    def _tend(self, entry: GpuEntry, *, first: bool) -> None:
        if not self._tender.tend(entry):
            self._next_s[entry.gpu] = 0.0  # with the next tick
        if first and self._prove:
            self._tender.prove(entry)

    def _wait(self, stop: Event) -> None:
        """Wait for the end of a daemon, or a tick."""
        known: dict[GpuUuid, DaemonProcess] = {}
        for entry in self._supervisor.table.all():
            daemon = entry.daemon
            # One whose end was told is not waited for again while nobody could see to it.
            if daemon is not None and self._ended.get(entry.gpu) != daemon:
                known[entry.gpu] = daemon
        if not known:
            stop.wait(self._tick_s)
            return
        try:
            ended = self._ports.daemons.wait(known, self._tick_s)
        except AdapterError as error:
            _log.warning("Cannot wait for MPS daemons", error=str(error))
            stop.wait(self._tick_s)
            return
        for gpu in ended:
            self._ended[gpu] = known[gpu]
            self._next_s[gpu] = 0.0
