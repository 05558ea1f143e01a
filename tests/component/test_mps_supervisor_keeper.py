"""The keeper's thread: what it sees by itself, and how soon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.errors import AdapterError, NotReady
from dra_driver.model.deadline import Deadline
from dra_driver.model.mps import ComputeMode, GpuProcess, MpsPhase, Proof
from dra_driver.model.share import GpuShare
from dra_driver.mps.keeper import Keeper
from dra_driver.mps.supervisor import Supervisor
from tests.component.mps_rig import GPU, OTHER, share
from tests.fakes.mps import FakeMps
from tests.fakes.recorder import FakeRecorder
from tests.waiting import eventually

A = share("a")


@contextmanager
def _kept(world: FakeMps, *, interval_s: float = 0.05) -> Iterator[Supervisor]:
    supervisor = Supervisor(
        world.ports(SystemClock(), Path("/run/gpuslice")),
        recorder=FakeRecorder(),
        burst_allowed=True,
    )
    stop = Event()
    keeper = Keeper(supervisor, interval_s=interval_s, tick_s=0.02)
    thread = Thread(target=keeper.run, args=(stop,), name="keeper")
    thread.start()
    try:
        yield supervisor
    finally:
        stop.set()
        for gate in world.gates.values():
            gate.set()
        thread.join(60)
        supervisor.close()
        assert not thread.is_alive()


def _apply(supervisor: Supervisor, *shares: GpuShare, within_s: float = 60) -> None:
    deadline = Deadline(SystemClock().monotonic_s() + within_s)
    supervisor.apply(GPU, shares, deadline)


def _is(supervisor: Supervisor, phase: MpsPhase, restarts: int = 0) -> bool:
    state = supervisor.board.get(GPU)
    return (state.phase, state.restarts) == (phase, restarts)


def test_keeper_proves_free_gpus_at_the_start_and_gives_them_back() -> None:
    world = FakeMps(GPU, OTHER)
    world.processes[OTHER] = (GpuProcess(pid=1, memory_bytes=None, mps=False),)
    with _kept(world) as supervisor:
        eventually(lambda: supervisor.board.get(GPU).proof, 60, "the GPU is proved")
        eventually(lambda: _is(supervisor, MpsPhase.FREE), 60, "the GPU is free")
        assert supervisor.board.get(GPU).proof == Proof(control_only=True)
        assert world.daemons == {}
        assert world.modes[GPU] is ComputeMode.DEFAULT
    assert not any(OTHER in line for line in world.log)


def test_keeper_brings_back_a_daemon_at_once_when_it_was_killed() -> None:
    world = FakeMps(GPU)
    with _kept(world, interval_s=3600) as supervisor:
        eventually(lambda: supervisor.board.get(GPU).proof, 60, "the GPU is proved")
        eventually(lambda: _is(supervisor, MpsPhase.FREE), 60, "the first look is over")
        _apply(supervisor, A)
        world.kill_daemon(GPU)
        eventually(lambda: _is(supervisor, MpsPhase.ACTIVE, 1), 60, "the daemon is back")
        assert world.exposed(GPU) == {"a"}


def test_keeper_reaches_what_a_failed_call_left() -> None:
    world = FakeMps(GPU)
    with _kept(world) as supervisor:
        eventually(lambda: supervisor.board.get(GPU).proof, 60, "the GPU is proved")
        eventually(lambda: _is(supervisor, MpsPhase.FREE), 60, "the GPU is free")
        world.fail("daemon", AdapterError("no memory"))
        with pytest.raises(NotReady):
            _apply(supervisor, A)
        eventually(lambda: _is(supervisor, MpsPhase.ACTIVE), 60, "the share is held")


def test_keeper_tends_others_when_one_gpu_hangs() -> None:
    world = FakeMps(GPU, OTHER)
    world.gates["daemon", OTHER] = Event()  # its proof does not come to an end
    with _kept(world) as supervisor:
        _apply(supervisor, A)
        world.kill_daemon(GPU)
        eventually(lambda: _is(supervisor, MpsPhase.ACTIVE, 1), 60, "the daemon is back")
