"""One look at one GPU: what is wrong is put right, as far as that goes now."""

from __future__ import annotations

from dra_driver import log
from dra_driver.errors import AdapterError, GpusliceError, MpsGone, MpsHung, MpsServerNotFound
from dra_driver.model.mps import MpsPhase, MpsServer, ServerStatus
from dra_driver.mps.converge import Converger
from dra_driver.mps.gpu_state import GpuEntry
from dra_driver.mps.refusals import daemons_on, processes_on
from dra_driver.mps.table import GpuTable
from dra_driver.mps.world import MpsPorts

FAULT_GRACE_S = 30.0
"""Clients of a server at fault get that long to end by themselves."""

ORPHAN_GRACE_S = 30.0
"""A daemon without a record is kept for so long: plugins that find mpsd tell their shares."""

_STRANGERS_AGAIN_S = 60.0

_log = log.get(__name__)


class Tender:
    """Looks after GPUs, one call at a time for each; a GPU that somebody works on is left alone."""

    def __init__(self, ports: MpsPorts, table: GpuTable, converger: Converger) -> None:
        self._ports = ports
        self._table = table
        self._converger = converger

    def tend(self, entry: GpuEntry) -> bool:
        """Look at daemon, server and clients, and do what is due; False where the GPU is busy."""
        with self._table.held(entry) as got:
            if not got:
                return False
            if entry.wanted and entry.server is not None:
                self._look(entry)
            orphan = self._is_orphan(entry)
            if not entry.wanted:
                self._look_for_strangers(entry)
            if orphan:
                return True
            if entry.lost and not self._ports.is_lost(entry.gpu):
                entry.lost, entry.retry_at_s = False, 0.0
            if not (entry.failures and self._ports.clock.monotonic_s() < entry.retry_at_s):
                self._reach(entry)
            return True

    def prove(self, entry: GpuEntry) -> None:
        """Take a GPU that is free, prove what its clients need, and give it back."""
        with self._table.held(entry) as got:
            if got and self._is_worth_proving(entry):
                entry.held = True
                self._reach(entry)
                entry.held = False
                self._reach(entry)

    def _is_orphan(self, entry: GpuEntry) -> bool:
        """Whether a daemon runs that nobody accounts for, and may have tenants still."""
        first = entry.looked_at_s is None
        # Looked for at the start alone: it is a look at all processes.
        if entry.recorded or not (first or entry.orphan_since_s is not None):
            return False
        if self._ports.daemons.find(entry.gpu) is None:
            return False
        now_s = self._ports.clock.monotonic_s()
        if entry.orphan_since_s is None:
            entry.orphan_since_s = now_s
            entry.phase = MpsPhase.STARTING
            entry.message = "the record of its shares is lost; the plugin tells them"
            _log.warning("An MPS daemon without a record", gpu=entry.gpu, kept_s=ORPHAN_GRACE_S)
            self._converger.tell(entry)
        return now_s - entry.orphan_since_s < ORPHAN_GRACE_S

    def _reach(self, entry: GpuEntry) -> None:
        try:
            self._converger.reach(entry)
        except GpusliceError as error:
            # The state has told it; the next look comes.
            _log.debug("A GPU is not reached", gpu=entry.gpu, error=str(error))

    def _look(self, entry: GpuEntry) -> None:
        gpu = entry.gpu
        if self._ports.daemons.find(gpu) != entry.daemon:
            self._converger.lost_daemon(entry)
            return
        try:
            server = self._ports.servers.find(gpu)
            clients = len(self._ports.servers.clients(gpu, server.pid)) if server else None
            entry.mode = self._ports.control.compute_mode(gpu)
        except (MpsHung, MpsGone) as error:
            self._converger.give_up_daemon(entry, str(error))
            return
        except MpsServerNotFound:
            server, clients = None, None
        except AdapterError as error:
            _log.warning("A GPU's server cannot be looked at", gpu=gpu, error=str(error))
            return
        known = entry.server
        if server is None or known is None or server.pid != known.pid:
            self._converger.lost_server(entry)
            entry.server = server
            entry.retry_at_s = 0.0
        elif clients is not None:
            self._judge(entry, server, clients)

    def _judge(self, entry: GpuEntry, server: MpsServer, clients: int) -> None:
        before = entry.server
        entry.server, entry.clients = server, clients
        entry.served = entry.served or clients > 0
        if before is not None and before.status is not server.status:
            entry.retry_at_s = 0.0
        match server.status:
            case ServerStatus.FAULT:
                self._judge_fault(entry, clients)
            case ServerStatus.ACTIVE:
                entry.fault_since_s = None
                if entry.served and not clients:
                    # Cheap protection: a fault that is hidden in it goes with it.
                    entry.renew = entry.recycling = True
            case ServerStatus.INITIALIZING:
                pass
        self._converger.tell(entry)

    def _judge_fault(self, entry: GpuEntry, clients: int) -> None:
        now_s = self._ports.clock.monotonic_s()
        if entry.fault_since_s is None:
            entry.fault_since_s = now_s
            entry.phase = MpsPhase.FAULT
            entry.message = "the MPS server is at fault; it is replaced once its clients have ended"
        if clients and now_s - entry.fault_since_s < FAULT_GRACE_S:
            return
        if not entry.renew:
            entry.renew, entry.retry_at_s = True, 0.0
            entry.restarts += 1

    def _look_for_strangers(self, entry: GpuEntry) -> None:
        now_s = self._ports.clock.monotonic_s()
        if entry.looked_at_s is not None and now_s - entry.looked_at_s < _STRANGERS_AGAIN_S:
            return
        entry.looked_at_s = now_s
        try:
            entry.refusal = daemons_on(self._ports, entry.gpu)
        except AdapterError as error:
            _log.warning("Foreign daemons not looked for", gpu=entry.gpu, error=str(error))
            return
        self._converger.tell(entry)

    def _is_worth_proving(self, entry: GpuEntry) -> bool:
        proof = entry.desired.proof
        known = proof is not None and proof.control_only is not None
        free = not entry.wanted and entry.phase is MpsPhase.FREE
        if known or not free or not self._converger.rules().prove:
            return False
        try:
            others = entry.refusal or processes_on(self._ports, entry.gpu, taken=False)
        except AdapterError as error:
            others = str(error)
        if others:
            _log.info("A GPU in use is not proved", gpu=entry.gpu, others=others)
        return not others
