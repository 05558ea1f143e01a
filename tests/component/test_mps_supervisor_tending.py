"""Daemons that die, servers that hang and clients that leave: how a GPU is tended."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Thread

import pytest

from dra_driver.errors import AdapterError, MpsHung, NotReady
from dra_driver.model.mps import ComputeMode, GpuProcess, MpsPhase, ServerStatus
from tests.component.mps_rig import GPU, MpsRig, share
from tests.waiting import eventually

A, B = share("a", 25, 6144), share("b", 40, 20480)


@pytest.fixture
def rig() -> Iterator[MpsRig]:
    rig = MpsRig()
    yield rig
    rig.close()


@pytest.fixture
def active(rig: MpsRig) -> MpsRig:
    rig.apply(A, B)
    rig.effects()
    return rig


def test_tend_starts_the_daemon_anew_when_it_died(active: MpsRig) -> None:
    active.world.kill_daemon(GPU)
    state = active.tend()
    assert (state.phase, state.restarts) == (MpsPhase.ACTIVE, 1)
    assert active.effects() == [
        "daemon multi-user",
        "limits 40% 20480M",
        "server 0",
        "expose a",
        "expose b",
    ]
    active.assert_holds(A, B)


def test_apply_ends_a_server_that_outlived_its_daemon_before_the_gpu_is_open(
    active: MpsRig,
) -> None:
    server = active.world.servers[GPU]
    active.world.kill_daemon(GPU)
    active.world.servers[GPU] = server
    active.apply()
    assert active.effects() == ["hide a", "hide b", "kill", "mode Default"]
    active.assert_free()


def test_tend_tells_the_fault_until_the_daemon_is_back(active: MpsRig) -> None:
    active.world.kill_daemon(GPU)
    active.world.fail("daemon", *[AdapterError("no memory")] * 3)
    for pause_s in (0, 1, 5):
        active.clock.advance(pause_s)
        state = active.tend()
        assert (state.phase, state.message) == (MpsPhase.FAULT, "no memory")
    tries = len(active.world.failures["daemon"])
    assert active.tend().phase is MpsPhase.FAULT
    assert len(active.world.failures["daemon"]) == tries == 0
    active.clock.advance(10)
    assert active.tend().restarts == 1
    active.assert_holds(A, B)


def test_tend_retries_soon_again_when_it_was_well_in_between(active: MpsRig) -> None:
    for _ in range(2):
        active.world.kill_daemon(GPU)
        active.world.fail("daemon", AdapterError("no memory"))
        assert active.tend().phase is MpsPhase.FAULT
        active.clock.advance(1)
        assert active.tend().phase is MpsPhase.ACTIVE


def test_tend_tells_a_fault_while_the_daemon_is_on_its_way_back(active: MpsRig) -> None:
    gate = active.world.gates["daemon", GPU] = Event()
    active.world.kill_daemon(GPU)
    tending = Thread(target=active.tend, name="tending")
    tending.start()
    eventually(lambda: "daemon" in active.world.waiting, 60, "the daemon is on its way")
    assert active.state().phase is MpsPhase.FAULT
    gate.set()
    tending.join(60)
    assert active.state().phase is MpsPhase.ACTIVE


def test_tend_ends_the_daemon_by_force_when_it_hangs(active: MpsRig) -> None:
    active.world.fail("status", MpsHung("get_server_status does not return"))
    state = active.tend()
    assert (state.phase, state.restarts) == (MpsPhase.ACTIVE, 1)
    assert active.effects()[0] == "kill"
    active.assert_holds(A, B)


def test_tend_starts_the_server_anew_when_it_died(active: MpsRig) -> None:
    del active.world.servers[GPU]
    state = active.tend()
    assert (state.phase, state.restarts) == (MpsPhase.ACTIVE, 1)
    assert active.effects() == ["server 0"]


def test_tend_waits_for_clients_before_it_replaces_a_server_at_fault(active: MpsRig) -> None:
    active.world.clients[GPU] = (501,)
    active.world.break_server(GPU)
    assert active.tend().phase is MpsPhase.FAULT
    active.clock.advance(29)
    active.tend()
    assert active.effects() == []
    active.clock.advance(2)
    assert active.tend().phase is MpsPhase.ACTIVE
    assert active.effects() == ["stop force", "server 0"]
    assert active.state().restarts == 1


def test_tend_replaces_a_server_at_fault_at_once_when_no_client_is_left(active: MpsRig) -> None:
    active.world.break_server(GPU)
    assert active.tend().phase is MpsPhase.ACTIVE
    assert active.effects() == ["stop force", "server 0"]


def test_tend_is_content_when_a_server_at_fault_heals(active: MpsRig) -> None:
    active.world.clients[GPU] = (501,)
    active.world.break_server(GPU)
    assert active.tend().phase is MpsPhase.FAULT
    active.world.break_server(GPU, ServerStatus.ACTIVE)
    state = active.tend()
    assert (state.phase, state.restarts, state.message) == (MpsPhase.ACTIVE, 0, "")


def test_tend_renews_an_idle_server_when_its_last_client_left(active: MpsRig) -> None:
    active.tend()
    assert active.effects() == []
    active.world.clients[GPU] = (501, 502)
    assert active.tend().clients == 2
    active.world.clients[GPU] = ()
    daemon = active.world.daemons[GPU]
    state = active.tend()
    assert active.effects() == ["stop", "server 0"]
    assert (state.phase, state.restarts) == (MpsPhase.ACTIVE, 0)
    assert active.world.daemons[GPU] == daemon
    active.tend()
    assert active.effects() == []


def test_tend_leaves_a_server_alone_when_a_client_comes_at_the_last_moment(active: MpsRig) -> None:
    active.world.clients[GPU] = (501,)
    active.tend()
    active.world.late_clients[GPU] = [(), (502,)]
    state = active.tend()
    assert (state.phase, active.effects()) == (MpsPhase.ACTIVE, [])
    active.world.clients[GPU] = ()
    active.tend()
    assert active.effects() == ["stop", "server 0"]


def test_tend_sets_exclusive_mode_again_when_somebody_changed_it(active: MpsRig) -> None:
    active.world.modes[GPU] = ComputeMode.DEFAULT
    assert active.tend().phase is MpsPhase.ACTIVE
    assert active.effects() == ["mode ExclusiveProcess"]


def test_tend_names_who_took_the_gpu_when_the_server_does_not_start(active: MpsRig) -> None:
    active.world.kill_daemon(GPU)
    active.world.new_server = ServerStatus.INITIALIZING
    active.world.processes[GPU] = (GpuProcess(pid=4242, memory_bytes=None, mps=False),)
    state = active.tend()
    assert state.phase is MpsPhase.FAULT
    assert "4242" in state.message
    active.world.new_server = ServerStatus.ACTIVE
    active.clock.advance(60)
    assert active.tend().phase is MpsPhase.ACTIVE


def test_tend_says_why_a_free_gpu_cannot_be_shared(rig: MpsRig) -> None:
    rig.world.foreign[GPU] = (77,)
    assert "77" in rig.tend().refusal
    rig.world.foreign.clear()
    rig.clock.advance(60)
    assert rig.tend().refusal == ""


def test_tend_goes_on_when_a_restore_of_the_mode_failed(active: MpsRig) -> None:
    active.world.fail("mode", AdapterError("NVML: unknown error"))
    with pytest.raises(NotReady, match="unknown error"):
        active.apply()
    active.clock.advance(1)
    active.tend()
    active.assert_free()
