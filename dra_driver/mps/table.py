"""All GPUs that the supervisor knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from dra_driver.errors import NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import DesiredShares, MpsPhase
from dra_driver.mps.gpu_state import GpuEntry
from dra_driver.ports import Clock, MpsStore, ShareFolders


class GpuTable:
    """One entry for each GPU of the node or of the store. Thread-safe; entries have locks.

    The store is read once, when the table is first used.
    """

    def __init__(
        self,
        store: MpsStore,
        *,
        folders: ShareFolders,
        clock: Clock,
        gpus: Callable[[], tuple[GpuUuid, ...]],
    ) -> None:
        self._store = store
        self._folders = folders
        self._clock = clock
        self._gpus = gpus
        self._mutex = Lock()
        self._entries: dict[GpuUuid, GpuEntry] | None = None

    def entry(self, gpu: GpuUuid) -> GpuEntry:
        with self._mutex:
            entries = self._loaded()
            if gpu not in entries:
                entries[gpu] = GpuEntry(gpu=gpu, desired=DesiredShares(gpu=gpu))
            return entries[gpu]

    def all(self) -> tuple[GpuEntry, ...]:
        """Give the GPUs of the node, and those of which something is kept, by UUID."""
        gpus = self._gpus()
        for gpu in gpus:
            self.entry(gpu)
        with self._mutex:
            entries = self._loaded()
            gone = [
                entry
                for gpu, entry in entries.items()
                if gpu not in gpus and is_nothing(entry) and not entry.lock.locked()
            ]
            for entry in gone:
                del entries[entry.gpu]
            return tuple(entries[gpu] for gpu in sorted(entries))

    @contextmanager
    def held(self, entry: GpuEntry) -> Iterator[bool]:
        """Hold a GPU if nobody else does: False where somebody works on it."""
        got = entry.lock.acquire(blocking=False)
        try:
            yield got
        finally:
            if got:
                entry.lock.release()

    def acquire(self, entry: GpuEntry, deadline: Deadline) -> None:
        """Hold a GPU until its lock is released; raises NotReady when the deadline passes first."""
        remaining_s = deadline.remaining_s(self._clock.monotonic_s())
        if not entry.lock.acquire(timeout=remaining_s):
            raise NotReady(
                Reason.DEVICE_BUSY,
                f"GPU {entry.gpu} is busy: {entry.message or 'its sharing is being changed'}; it "
                "is tried again",
            )

    def hide_unknown(self, *, but: frozenset[str]) -> tuple[str, ...]:
        """Remove folders of shares that nobody wants any more; gives their ids."""
        known = self._folders.known()
        hidden = []
        for share in sorted(known - but):
            # Under the mutex, because a share gets into its entry before it gets a folder.
            with self._mutex:
                if not any(share in _shares(entry) for entry in self._loaded().values()):
                    self._folders.hide(share)
                    hidden.append(share)
        return tuple(hidden)

    def _loaded(self) -> dict[GpuUuid, GpuEntry]:
        if self._entries is None:
            self._entries = {
                gpu: GpuEntry(
                    gpu=gpu,
                    desired=desired,
                    phase=MpsPhase.STARTING if desired.shares else MpsPhase.DRAINING,
                    message="the supervisor has started and looks at what there is",
                )
                for gpu, desired in self._store.load().items()
            }
        return self._entries


def is_nothing(entry: GpuEntry) -> bool:
    """Whether nothing is wanted of a GPU, and nothing of ours is left there."""
    taken = entry.desired.mode_before is not None or entry.daemon is not None
    return not entry.wanted and not taken


def _shares(entry: GpuEntry) -> frozenset[str]:
    return frozenset(share.id for share in entry.desired.shares)
