"""A supervisor of MPS in memory, as the service of `gpuslice mpsd` and the sharing monitor see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from threading import Event

from dra_driver.errors import GpusliceError, NotFound
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase
from dra_driver.model.share import GpuShare
from dra_driver.state.current import Current


class FakeSharingWatch:
    def __init__(self, states: Current[tuple[GpuSharing, ...]]) -> None:
        self._states = states
        self.closed = Event()

    def __iter__(self) -> Iterator[tuple[GpuSharing, ...]]:
        version, value = self._states.snapshot()
        while True:
            yield value
            known = version
            while version == known:
                if self.closed.is_set() or self._states.closed:
                    return
                version, value = self._states.wait_newer(known, 0.02)

    def close(self) -> None:
        self.closed.set()


class FakeSharing:
    """Enforces at once.

    Attributes:
        states: of all GPUs; a test may set them.
        applied: each set that was applied, in order.
        deadlines: of the calls, in order.
        broken: an error that each call raises while it is set.
        gate: apply waits for it; set from the start.
        entered: set when an apply begins.
        watches: all that were begun.
        clients: pids that can be terminated.
    """

    def __init__(self, *gpus: GpuUuid) -> None:
        self.states = Current(tuple(GpuSharing(gpu=gpu) for gpu in gpus))
        self.applied: list[tuple[GpuUuid, tuple[GpuShare, ...]]] = []
        self.deadlines: list[Deadline] = []
        self.broken: GpusliceError | None = None
        self.gate = Event()
        self.gate.set()
        self.entered = Event()
        self.watches: list[FakeSharingWatch] = []
        self.clients: set[int] = set()

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        self.entered.set()
        self.gate.wait(30)
        self.deadlines.append(deadline)
        if self.broken is not None:
            raise self.broken
        self.applied.append((gpu, shares))
        self.tell(
            gpu,
            phase=MpsPhase.ACTIVE if shares else MpsPhase.FREE,
            shares=tuple(share.id for share in shares),
        )

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def state(self, gpu: GpuUuid) -> GpuSharing:
        known = {state.gpu: state for state in self.states.get()}
        return known.get(gpu) or GpuSharing(gpu=gpu)

    def tell(self, gpu: GpuUuid, **changes: object) -> None:
        """Change the state of a GPU that is known."""
        self.states.set(
            tuple(
                replace(state, **changes) if state.gpu == gpu else state  # type: ignore[arg-type]
                for state in self.states.get()
            )
        )

    def watch(self) -> FakeSharingWatch:
        watch = FakeSharingWatch(self.states)
        self.watches.append(watch)
        return watch

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        self.deadlines.append(deadline)
        if self.broken is not None:
            raise self.broken
        if pid not in self.clients:
            raise NotFound(f"process {pid} is no client of GPU {gpu}")
        self.clients.discard(pid)
