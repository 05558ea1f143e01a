"""Enforces shares of GPUs by MPS: one daemon and one server for each GPU that has shares."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event

from dra_driver import log
from dra_driver.errors import (
    AdapterError,
    GpusliceError,
    MpsServerNotFound,
    NotFound,
    NotReady,
    Reason,
)
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.mps import DesiredShares, GpuSharing, MpsPhase
from dra_driver.model.share import Expose, GpuShare, ShareAbility
from dra_driver.mps.board import StateBoard
from dra_driver.mps.converge import Converger, is_quick
from dra_driver.mps.gpu_state import GpuEntry
from dra_driver.mps.refusals import GpuRefused, refuse_unproved
from dra_driver.mps.table import GpuTable
from dra_driver.mps.world import MpsPorts
from dra_driver.plan.mps import mps_shares
from dra_driver.plan.mps_abilities import supervised_abilities
from dra_driver.plan.mps_steps import HideShare
from dra_driver.ports import Recorder, SharingWatch

_WORKERS_MAX = 64
"""Each works on one GPU and holds its lock, so there are never more than GPUs."""

_log = log.get(__name__)


class Supervisor:
    """`ShareSupervisor`, `SharingStates` and `ClientTerminator` over the ports of MPS.

    What is desired is durable before anything is done. A change of sockets alone is made by the
    caller's thread; whatever may take long is done by a worker, which goes on when the caller has
    lost its patience. `Keeper` keeps what was reached.

    Args:
        ports: the world.
        recorder: gets the time that starts take, and failures.
        burst_allowed: shares may use more compute than they asked for.
        single_uid: of all pods that share GPUs, where a daemon serves one user only.
        expose_folder: containers see all sockets.
        simulated: no servers stand behind the daemons.
        pause: waits so many seconds; None: on this supervisor's end.
    """

    def __init__(
        self,
        ports: MpsPorts,
        *,
        recorder: Recorder,
        burst_allowed: bool,
        single_uid: int | None = None,
        expose_folder: bool = False,
        simulated: bool = False,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.ports = ports
        self.board = StateBoard()
        self.table = GpuTable(
            ports.store, folders=ports.folders, clock=ports.clock, gpus=ports.gpus
        )
        self._ending = Event()
        self.converger = Converger(
            ports,
            self.board,
            recorder=recorder,
            ending=self._ending,
            pause=pause or self._ending.wait,
            single_uid=single_uid,
            expose_folder=expose_folder,
            simulated=simulated,
        )
        self._burst_allowed = burst_allowed
        self._expose_folder = expose_folder
        self._workers = ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="mps-apply")

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        """Make `shares` the whole set of this GPU; those that MPS does not enforce are ignored.

        Shares may leave whatever the state of the GPU, or pods would hang on one that is broken:
        where they alone change and are hidden, what else fails is left to the keeper.

        Raises:
            NotReady: not converged, by the deadline or because of a failure that the text tells;
                the set is kept as desired, and the keeper goes on.
            AdapterError: the set cannot be enforced; what was desired before stays so.
        """
        wanted = mps_shares(shares)
        entry = self.table.entry(gpu)
        self.table.acquire(entry, deadline)
        worker: Future[None] | None = None
        try:
            previous = entry.desired
            self._want(entry, wanted)
            if not self._was_quick(entry):
                worker = self._start(entry, previous)
        finally:
            if worker is None:
                entry.lock.release()
        if worker is not None:
            self._await(entry, worker, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        """As `ShareSupervisor.abilities`."""
        return supervised_abilities(
            inventory,
            (self.board.get(gpu.uuid) for gpu in inventory.gpus),
            burst_allowed=self._burst_allowed,
            expose_folder=self._expose_folder,
        )

    def state(self, gpu: GpuUuid) -> GpuSharing:
        """Give the newest state of one GPU; of one that is not known, that it is free."""
        return self.board.get(gpu)

    def watch(self) -> SharingWatch:
        """As `SharingStates.watch`."""
        self.show()
        return self.board.watch()

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        """As `ClientTerminator.terminate_client`; does not wait for who changes the GPU."""
        del deadline  # the port has its own time-out, and one call is all that it takes
        server = self.table.entry(gpu).server or self.ports.servers.find(gpu)
        if server is None:
            raise NotFound(f"process {pid} is no client of GPU {gpu}: it has no MPS server")
        try:
            self.ports.servers.terminate(gpu, server.pid, pid)
        except MpsServerNotFound as error:
            raise NotFound(f"process {pid} is no client of GPU {gpu}: {error}") from error

    def recover(self) -> None:
        """Read what is desired, and remove folders of shares that nobody wants any more.

        Those of a daemon whose record is lost stay as long as it: containers have them mounted.

        Raises:
            AdapterError: the store or the folders cannot be read.
        """
        for share in self.table.hide_unknown(but=self._orphans()):
            _log.info("Removed the folder of a share that nobody wants", share=share)
        self.show()

    def show(self) -> None:
        """Show GPUs that came, and those that have shares from before, to all who follow."""
        entries = self.table.all()
        self.board.keep(frozenset(entry.gpu for entry in entries))
        for entry in entries:
            # Whoever works on one tells it anyway, and newer than this thread could.
            with self.table.held(entry) as got:
                if got:
                    self.converger.tell(entry)

    def end(self) -> None:
        """Let waits for servers end, and all watches."""
        self._ending.set()
        self.board.close()

    def close(self) -> None:
        """End, and wait for workers; what they did not reach is reached after a restart."""
        self.end()
        self._workers.shutdown()

    def _orphans(self) -> frozenset[str]:
        """Shares that lead to daemons without a record."""
        return frozenset[str]().union(
            *(
                self.ports.folders.exposed(entry.gpu)
                for entry in self.table.all()
                if not entry.recorded and self.ports.daemons.find(entry.gpu) is not None
            )
        )

    def _want(self, entry: GpuEntry, wanted: tuple[GpuShare, ...]) -> None:
        """Make a set the desired one, durably."""
        if wanted == entry.desired.shares:
            return
        self._check(entry, wanted)
        self._set(entry, wanted)

    def _check(self, entry: GpuEntry, wanted: tuple[GpuShare, ...]) -> None:
        gpu = entry.gpu
        more = set(wanted).difference(entry.desired.shares)
        if more and gpu not in self.ports.gpus():
            raise AdapterError(f"GPU {gpu} is not on this node (any more): it cannot be shared")
        strange = [share.id for share in wanted if share.gpu != gpu]
        if strange:
            raise AdapterError(f"share {strange[0]} is not one of GPU {gpu}", permanent=True)
        if len({share.id for share in wanted}) != len(wanted):
            raise AdapterError(f"shares of GPU {gpu} have one id twice", permanent=True)
        if entry.desired.proof is not None:
            known = {share.id for share in entry.desired.shares if share.expose is Expose.CONTROL}
            new = tuple(share for share in wanted if share.id not in known)
            refuse_unproved(gpu, entry.desired.proof, new)

    def _set(self, entry: GpuEntry, wanted: tuple[GpuShare, ...]) -> None:
        before = {share.id for share in entry.desired.shares}
        self.converger.steps.keep(entry, replace(entry.desired, shares=wanted))
        entry.stale = (entry.stale | before) - {share.id for share in wanted}

    def _was_quick(self, entry: GpuEntry) -> bool:
        """Whether all was done already, since nothing of it could take long."""
        at_rest = MpsPhase.ACTIVE if entry.desired.shares else MpsPhase.FREE
        if entry.phase is not at_rest or self._ending.is_set():
            return False
        try:
            steps = self.converger.plan(entry)
            if not all(is_quick(step) for step in steps):
                return False
            self.converger.run_quick(entry, steps)
        except AdapterError as error:
            _log.warning("A share is not exposed at once", gpu=entry.gpu, error=str(error))
            return False
        return True

    def _start(self, entry: GpuEntry, previous: DesiredShares) -> Future[None]:
        if self._ending.is_set():
            raise NotReady(
                Reason.SHUTTING_DOWN,
                f"sharing of GPU {entry.gpu}: the supervisor is stopping; it is tried again",
            )
        worker = self._workers.submit(self._attempt, entry, previous)
        # Runs also where the worker was cancelled before it began.
        worker.add_done_callback(lambda _: entry.lock.release())
        return worker

    def _attempt(self, entry: GpuEntry, previous: DesiredShares) -> None:
        try:
            self.converger.reach(entry)
        except AdapterError as error:
            if self._have_left(entry, previous):
                _log.warning("Shares left a GPU that is not well", gpu=entry.gpu, error=str(error))
                return
            if isinstance(error, GpuRefused):
                self._undo(entry, previous)
                raise AdapterError(str(error)) from error
            raise NotReady(Reason.STEP_FAILED, str(error)) from error

    def _have_left(self, entry: GpuEntry, previous: DesiredShares) -> bool:
        """Whether shares only leave and are out of sight; of the last, also that nothing runs."""
        shares = set(entry.desired.shares)
        if not shares:
            done = entry.daemon is None and self.ports.is_lost(entry.gpu)
        else:
            done = shares < set(previous.shares)
        if not done:
            return False
        try:
            for share in sorted(entry.stale):
                self.converger.steps.run(entry, HideShare(share=share))
        except AdapterError as error:
            _log.warning("A share's folder is not removed", gpu=entry.gpu, error=str(error))
            return False
        return True

    def _undo(self, entry: GpuEntry, previous: DesiredShares) -> None:
        """Go back to what was desired before; what that takes is left to the keeper if it fails."""
        try:
            self._set(entry, previous.shares)
            self.converger.reach(entry)
        except GpusliceError as error:
            _log.warning("A GPU is not as it was before", gpu=entry.gpu, error=str(error))

    def _await(self, entry: GpuEntry, worker: Future[None], deadline: Deadline) -> None:
        remaining_s = deadline.remaining_s(self.ports.clock.monotonic_s())
        try:
            worker.result(remaining_s)
        except TimeoutError as error:
            raise NotReady(
                Reason.OUT_OF_TIME,
                f"GPU {entry.gpu} is not ready yet: {entry.message or 'its sharing is changed'}; "
                "that goes on, and is looked at again",
            ) from error
