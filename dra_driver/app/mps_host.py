"""The supervisor of MPS inside a plugin with simulated GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event

from dra_driver import log
from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.simulated_document import Simulation
from dra_driver.app.gpus import NodeGpus
from dra_driver.app.mps_parts import MpsParts, mpsd_lock, open_supervisor
from dra_driver.errors import AdapterError, FatalError, NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.mps import GpuSharing
from dra_driver.model.share import GpuShare, ShareAbility
from dra_driver.ports import Clock, Recorder, SharingWatch
from dra_driver.settings import Settings
from dra_driver.sockets import HeldByAnother, only_process

_LOG = log.get(__name__)
_POLL_S = 0.1


class HostedSupervisor:
    """`ShareSupervisor`, `SharingStates` and `ClientTerminator` of this process.

    Two plugins run side by side while one takes over from the other; only one may work on the run
    folder. So what is to be done waits until the other has ended; until then all GPUs look free.

    Args:
        parts: the supervisor and its keeper.
        lock: held while they work.
        gpus: what states tell of before.
    """

    def __init__(self, parts: MpsParts, *, lock: Path, gpus: NodeGpus, clock: Clock) -> None:
        self._parts = parts
        self._lock = lock
        self._gpus = gpus
        self._clock = clock
        self._turn = Event()
        self._settled = Event()
        self._failure: FatalError | None = None

    def run(self, stop: Event) -> None:
        """Wait for the turn, then keep GPUs as they are desired, until `stop`.

        Raises:
            FatalError: the run folder cannot be used.
            AdapterError: what is desired cannot be read.
        """
        told = False
        while not stop.is_set():
            try:
                with only_process(self._lock, what="holds the shares of this node"):
                    self._turn.set()
                    self._settled.set()
                    self._parts.keeper.run(stop)
                    return
            except HeldByAnother as error:
                if not told:
                    _LOG.info("Waiting for another plugin to end", cause=str(error))
                told = True
            except FatalError as error:
                # Who waits for the turn has to know: it will not come.
                self._failure = FatalError(f"--run-dir {self._lock.parent}: {error}")
                self._settled.set()
                raise self._failure from error
            stop.wait(_POLL_S)

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        """As the port says.

        Raises:
            FatalError: also this, where `run` failed and the process is to end.
        """
        if not self._settled.wait(deadline.remaining_s(self._clock.monotonic_s())):
            raise NotReady(
                Reason.DEVICE_BUSY,
                f"GPU {gpu}: another plugin holds {self._lock} still; it is tried again",
            )
        if self._failure is not None:
            raise self._failure
        self._parts.supervisor.apply(gpu, shares, deadline)

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        return self._parts.supervisor.abilities(inventory)

    def watch(self) -> SharingWatch:
        if self._turn.is_set():
            return self._parts.supervisor.watch()
        return _Waiting(self._turn, _free(self._gpus))

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        if not self._turn.is_set():
            raise AdapterError(f"process {pid} keeps GPU {gpu}: another plugin holds {self._lock}")
        self._parts.supervisor.terminate_client(gpu, pid, deadline)


@contextmanager
def host_supervisor(
    settings: Settings, *, gpus: NodeGpus, recorder: Recorder
) -> Iterator[HostedSupervisor]:
    """Give the supervisor; its `run` has to be run, and to end before the block is left."""
    inventory = StatedInventory(gpus)
    with open_supervisor(settings, gpus=gpus, inventory=inventory, recorder=recorder) as parts:
        yield HostedSupervisor(parts, lock=mpsd_lock(settings), gpus=gpus, clock=SystemClock())


class StatedInventory:
    """What the simulation file says; asking its library would use up faults that are counted.

    The same object as long as the file says the same.
    """

    def __init__(self, gpus: NodeGpus) -> None:
        self._file = gpus.simulation
        self._known: tuple[Simulation, Inventory] | None = None

    def __call__(self) -> Inventory | None:
        if self._file is None:
            return None
        node, known = self._file.last_good(), self._known
        if known is None or known[0] is not node:
            inventory = Inventory(
                driver_version=node.driver_version, gpus=node.gpus, simulated=True
            )
            known = self._known = (node, inventory)
        return known[1]


def _free(gpus: NodeGpus) -> tuple[GpuSharing, ...]:
    stated = StatedInventory(gpus)()
    known = stated.gpus if stated is not None else ()
    return tuple(GpuSharing(gpu=uuid, simulated=True) for uuid in sorted(gpu.uuid for gpu in known))


class _Waiting:
    """A `SharingWatch` that ends when it is this process's turn: then there is more to tell."""

    def __init__(self, turn: Event, states: tuple[GpuSharing, ...]) -> None:
        self._turn = turn
        self._states = states
        self._closed = Event()

    def __iter__(self) -> Iterator[tuple[GpuSharing, ...]]:
        yield self._states
        while not (self._closed.is_set() or self._turn.wait(_POLL_S)):
            pass

    def close(self) -> None:
        self._closed.set()
