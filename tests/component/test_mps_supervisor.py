"""What the supervisor does to a GPU, in which order, and what it answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event, Thread, current_thread

import pytest

from dra_driver.errors import AdapterError, MpsHung, NotFound, NotReady, Reason
from dra_driver.model.device import GpuUuid, Tier
from dra_driver.model.mps import ComputeMode, GpuProcess, MpsPhase, Proof
from dra_driver.model.share import Expose, Sharing
from tests.builders import gpu, inventory
from tests.component.mps_rig import GPU, OTHER, MpsRig, share
from tests.waiting import eventually


@pytest.fixture
def rig() -> Iterator[MpsRig]:
    rig = MpsRig()
    yield rig
    rig.close()


def test_apply_takes_a_gpu_in_order(rig: MpsRig) -> None:
    rig.apply(share("a"))
    rig.assert_holds(share("a"))
    proof = f"proof-{GPU}"
    assert rig.effects() == [
        "daemon multi-user",
        "limits 25% 6144M",
        "mode ExclusiveProcess",
        "server 0",
        f"expose {proof}",
        "prove",
        f"hide {proof}",
        "expose a",
    ]
    assert rig.state().proof == Proof(control_only=True)


def test_apply_gives_the_gpu_back_when_the_last_share_leaves(rig: MpsRig) -> None:
    rig.apply(share("a", 25), share("b", 40))
    daemon = rig.world.daemons[GPU]
    rig.apply(share("b", 40))
    assert rig.world.daemons[GPU] == daemon
    assert rig.world.modes[GPU] is ComputeMode.EXCLUSIVE_PROCESS
    rig.effects()
    rig.apply()
    assert rig.effects() == ["hide b", "quit", "mode Default"]
    rig.assert_free()


def test_apply_raises_ceilings_before_and_lowers_them_after(rig: MpsRig) -> None:
    rig.apply(share("a", 25, 6144))
    rig.effects()
    rig.apply(share("a", 25, 6144), share("b", 40, 20480))
    assert rig.effects() == ["limits 40% 20480M", "expose b"]
    rig.apply(share("a", 25, 6144))
    assert rig.effects() == ["hide b", "limits 25% 6144M"]
    rig.assert_holds(share("a", 25, 6144))


def test_apply_calls_no_program_when_a_smaller_share_comes(rig: MpsRig) -> None:
    rig.apply(share("a", 25, 6144))
    rig.effects()
    reads = rig.world.reads
    rig.apply(share("a", 25, 6144), share("b", 10, 1024))
    assert (rig.effects(), rig.world.reads) == (["expose b"], reads)
    assert rig.world.threads["expose"] == current_thread().name
    rig.assert_holds(share("a", 25, 6144), share("b", 10, 1024))


def test_apply_does_nothing_when_all_is_there(rig: MpsRig) -> None:
    rig.apply(share("a"))
    rig.world.log.clear()
    rig.apply(share("a"))
    assert rig.world.log == []


def test_apply_touches_nothing_when_no_share_is_of_mps(rig: MpsRig) -> None:
    rig.apply(replace(share("a"), sharing=Sharing.TIME_SLICING))
    assert rig.effects() == []
    rig.assert_free()


def test_apply_exposes_no_folder_when_the_share_gets_all_sockets(rig: MpsRig) -> None:
    rig.apply(share("a", expose=Expose.FOLDER))
    rig.assert_holds(share("a", expose=Expose.FOLDER))
    assert "expose a" not in rig.effects()


def test_apply_starts_the_server_for_one_uid_when_the_daemon_serves_one() -> None:
    rig = MpsRig(driver="550.163.01", single_uid=1000)
    rig.apply(share("a"))
    effects = rig.effects()
    assert effects[0] == "daemon"
    assert "server 1000" in effects
    assert not rig.state().multi_user
    rig.close()


@pytest.mark.parametrize("mode", [ComputeMode.DEFAULT, ComputeMode.EXCLUSIVE_PROCESS])
def test_apply_restores_the_mode_that_the_gpu_had(rig: MpsRig, mode: ComputeMode) -> None:
    rig.world.modes[GPU] = mode
    rig.apply(share("a"))
    rig.apply()
    rig.assert_free(mode=mode)


def test_apply_names_pids_when_processes_compute_on_the_gpu(rig: MpsRig) -> None:
    strangers = tuple(GpuProcess(pid=pid, memory_bytes=None, mps=False) for pid in (41, 4242))
    rig.world.processes[GPU] = strangers
    with pytest.raises(AdapterError, match=r"pid 41, 4242.*end them"):
        rig.apply(share("a"))
    assert rig.effects() == ["hide a"]
    rig.assert_free()
    rig.world.processes.clear()
    rig.apply(share("a"))
    rig.assert_holds(share("a"))


def test_apply_names_the_daemon_when_another_one_may_use_the_gpu(rig: MpsRig) -> None:
    rig.world.foreign[GPU] = (77,)
    with pytest.raises(AdapterError, match=r"not ours may use it \(pid 77\)"):
        rig.apply(share("a"))
    rig.assert_free()


def test_apply_refuses_a_gpu_when_its_mode_prohibits_compute(rig: MpsRig) -> None:
    rig.world.modes[GPU] = ComputeMode.PROHIBITED
    with pytest.raises(AdapterError, match="Prohibited"):
        rig.apply(share("a"))
    rig.assert_free(mode=ComputeMode.PROHIBITED)


def test_apply_keeps_what_was_desired_when_a_new_set_is_refused(rig: MpsRig) -> None:
    rig.world.proof = Proof(control_only=False, reason="cuInit: 805")
    rig.apply(share("a", expose=Expose.FOLDER))
    with pytest.raises(AdapterError, match=r"share b .*cuInit: 805"):
        rig.apply(share("a", expose=Expose.FOLDER), share("b"))
    rig.assert_holds(share("a", expose=Expose.FOLDER))


def test_apply_gives_the_gpu_back_when_its_clients_need_more_than_the_share_shows(
    rig: MpsRig,
) -> None:
    rig.world.proof = Proof(control_only=False, reason="cuInit: 805")
    with pytest.raises(AdapterError, match="the whole folder"):
        rig.apply(share("a"))
    rig.assert_free()
    (ability, _) = rig.supervisor.abilities(inventory(gpu(0), gpu(1)))
    assert (ability.tier, ability.expose) == (Tier.COOPERATIVE, Expose.FOLDER)


def test_apply_tells_why_when_the_daemon_does_not_start(rig: MpsRig) -> None:
    rig.world.fail("daemon", AdapterError("insufficient permissions"))
    with pytest.raises(NotReady, match="insufficient permissions") as caught:
        rig.apply(share("a"))
    assert caught.value.reason is Reason.STEP_FAILED
    assert rig.state().phase is MpsPhase.FAULT
    assert [each.id for each in rig.world.store[GPU].shares] == ["a"]
    rig.clock.advance(1)
    assert rig.tend().phase is MpsPhase.ACTIVE


def test_apply_starts_the_daemon_anew_when_it_hangs_meanwhile(rig: MpsRig) -> None:
    rig.world.fail("limits", MpsHung("set_default_active_thread_percentage does not return"))
    rig.apply(share("a"))
    rig.assert_holds(share("a"))
    assert rig.effects()[1] == "kill"


def test_apply_counts_the_loss_when_it_finds_another_daemon(rig: MpsRig) -> None:
    rig.apply(share("a"))
    rig.world.kill_daemon(GPU)
    rig.apply(share("a"), share("b"))
    rig.assert_holds(share("a"), share("b"))
    assert rig.state().restarts == 1


def test_apply_is_not_ready_at_its_deadline_and_the_work_goes_on(rig: MpsRig) -> None:
    gate = rig.world.gates["daemon", GPU] = Event()
    with pytest.raises(NotReady) as caught:
        rig.apply(share("a"), within_s=0.05)
    assert caught.value.reason is Reason.OUT_OF_TIME
    assert rig.state().phase is MpsPhase.STARTING
    gate.set()
    eventually(lambda: rig.state().phase is MpsPhase.ACTIVE, 60, "the GPU is active")
    rig.assert_holds(share("a"))


def test_apply_is_busy_when_the_gpu_is_and_others_are_not_held_up(rig: MpsRig) -> None:
    gate = rig.world.gates["mode", GPU] = Event()
    with pytest.raises(NotReady):
        rig.apply(share("a"), within_s=0.05)
    with pytest.raises(NotReady) as caught:
        rig.apply(share("a"), share("b"), within_s=0.05)
    assert caught.value.reason is Reason.DEVICE_BUSY
    rig.apply(share("c", gpu=OTHER), gpu=OTHER)
    rig.assert_holds(share("c", gpu=OTHER), gpu=OTHER)
    gate.set()


def test_apply_frees_a_gpu_when_it_is_lost(rig: MpsRig) -> None:
    rig.apply(share("a"))
    rig.world.gpus = (OTHER,)
    rig.apply()
    assert GPU not in rig.world.daemons
    assert GPU not in rig.world.folders
    assert rig.state().phase is MpsPhase.FREE


def test_apply_lets_shares_go_when_the_gpu_cannot_be_reached(rig: MpsRig) -> None:
    rig.apply(share("a"), share("b"), share("c", percent=40))
    rig.world.lost = frozenset({GPU})
    for shares in ((share("a"), share("b")), (share("b"),), ()):
        rig.world.fail("limits", AdapterError("the GPU is lost"))
        rig.world.fail("mode", *[AdapterError("the GPU is lost")] * 2)
        rig.apply(*shares)
        assert rig.world.exposed(GPU) == {each.id for each in shares}
    assert GPU not in rig.world.daemons
    assert rig.world.modes[GPU] is ComputeMode.EXCLUSIVE_PROCESS
    for _ in range(3):
        rig.clock.advance(60)
        assert rig.tend().phase is MpsPhase.FAULT
    rig.world.failures.clear()
    rig.world.lost = frozenset()
    rig.tend()
    rig.assert_free()


@pytest.mark.parametrize("gpus", [(GPU, OTHER), (OTHER,)])
def test_apply_lets_one_of_several_shares_go_when_the_gpu_is_not_well(
    rig: MpsRig, gpus: tuple[GpuUuid, ...]
) -> None:
    rig.apply(share("a"), share("b"))
    rig.world.gpus = gpus
    rig.world.kill_daemon(GPU)
    rig.world.fail("daemon", *[AdapterError("no memory")] * 2)
    rig.apply(share("a"))
    assert rig.state().phase is MpsPhase.FAULT
    assert set(rig.world.folders) == {"a"}
    with pytest.raises(NotReady, match="no memory"):
        rig.apply(share("a"))


def test_apply_waits_for_the_driver_when_the_gpus_were_never_read() -> None:
    rig = MpsRig()
    rig.apply(share("a"))
    rig.world.gpus, rig.driver = (), None
    rig.restart()
    rig.supervisor.recover()
    rig.world.kill_daemon(GPU)
    rig.effects()
    assert "could not be read" in rig.tend().message
    with pytest.raises(NotReady, match="lost"):
        rig.apply()
    assert rig.world.modes[GPU] is ComputeMode.EXCLUSIVE_PROCESS
    rig.world.gpus, rig.driver = (GPU,), "570.1"
    rig.clock.advance(60)
    rig.tend()
    rig.assert_free()
    rig.close()


def test_apply_refuses_a_gpu_when_the_node_has_it_not(rig: MpsRig) -> None:
    rig.world.gpus = (OTHER,)
    with pytest.raises(AdapterError, match="not on this node"):
        rig.apply(share("a"))


def test_terminate_client_reaches_the_server(rig: MpsRig) -> None:
    rig.apply(share("a"))
    rig.world.clients[GPU] = (501,)
    rig.supervisor.terminate_client(GPU, 501, rig.deadline())
    assert rig.effects()[-1] == "terminate 501"
    with pytest.raises(NotFound):
        rig.supervisor.terminate_client(GPU, 502, rig.deadline())


def test_watch_gives_the_newest_and_ends_when_closed(rig: MpsRig) -> None:
    watch = rig.supervisor.watch()
    states = iter(watch)
    assert [each.phase for each in next(states)] == [MpsPhase.FREE, MpsPhase.FREE]
    rig.apply(share("a"))
    assert [each.phase for each in next(states)] == [MpsPhase.ACTIVE, MpsPhase.FREE]
    rest: list[object] = []
    reader = Thread(target=lambda: rest.extend(states), name="reader")
    reader.start()
    watch.close()
    reader.join(60)
    assert not reader.is_alive()
    assert rest == []
