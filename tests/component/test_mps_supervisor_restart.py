"""A supervisor that is lost at any moment, and the one after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dra_driver.errors import NotReady
from dra_driver.model.mps import ComputeMode, MpsPhase
from dra_driver.model.share import Expose, GpuShare
from dra_driver.mps.tending import ORPHAN_GRACE_S
from tests.component.mps_rig import GPU, OTHER, MpsRig, share
from tests.fakes.mps import Crash

A, B, BIG = share("a", 25, 6144), share("b", 10, 1024), share("c", 60, 20480)
STORIES: tuple[tuple[tuple[GpuShare, ...], ...], ...] = (
    ((A,),),
    ((A,), (A, B)),
    ((A,), (A, BIG)),
    ((A, BIG), (A,)),
    ((A,), (share("d", expose=Expose.FOLDER),)),
    ((A, B), ()),
)


@pytest.fixture
def rig() -> Iterator[MpsRig]:
    rig = MpsRig()
    yield rig
    rig.close()


def _crashed(rig: MpsRig, story: tuple[tuple[GpuShare, ...], ...], after: int) -> bool:
    """Play a story whose last call dies after so many effects; False where it did not come to it."""
    *first, last = story
    for shares in first:
        rig.apply(*shares)
    rig.world.crash_after = after
    try:
        rig.apply(*last)
    except Crash:
        return True
    finally:
        rig.world.crash_after = None
    return False


def _moments(
    story: tuple[tuple[GpuShare, ...], ...], mode: ComputeMode = ComputeMode.DEFAULT
) -> Iterator[tuple[MpsRig, bool]]:
    """The story, crashed after each of its effects, and a new supervisor over what is left."""
    after, crashed = 0, True
    while crashed:
        rig = MpsRig()
        rig.world.modes[GPU] = mode
        crashed = _crashed(rig, story, after)
        rig.restart()
        rig.supervisor.recover()
        rig.tend()
        yield rig, crashed
        rig.close()
        after += 1
    assert after > 2


@pytest.mark.parametrize("story", STORIES)
def test_recover_converges_to_what_was_desired_when_a_call_died_at_any_effect(
    story: tuple[tuple[GpuShare, ...], ...],
) -> None:
    for rig, _ in _moments(story):
        kept = rig.world.store.get(GPU)
        desired = kept.shares if kept is not None else ()
        if desired:
            rig.assert_holds(*desired)
        else:
            rig.assert_free()


@pytest.mark.parametrize("story", STORIES)
def test_apply_repeated_succeeds_when_the_call_died_at_any_effect(
    story: tuple[tuple[GpuShare, ...], ...],
) -> None:
    for rig, _ in _moments(story):
        rig.apply(*story[-1])
        if story[-1]:
            rig.assert_holds(*story[-1])
        rig.apply()
        rig.assert_free()


def test_recover_restores_the_mode_of_before_when_the_first_call_died_at_any_effect() -> None:
    mode = ComputeMode.EXCLUSIVE_PROCESS
    for rig, _ in _moments(((A,),), mode):
        rig.apply()
        rig.assert_free(mode=mode)


def test_recover_adopts_a_running_daemon_and_its_server(rig: MpsRig) -> None:
    rig.apply(A, B)
    daemon, server = rig.world.daemons[GPU], rig.world.servers[GPU]
    rig.restart()
    rig.effects()
    rig.supervisor.recover()
    assert rig.state().shares == ("a", "b")
    state = rig.tend()
    assert (state.phase, state.daemon_pid, state.server_pid) == (
        MpsPhase.ACTIVE,
        daemon.pid,
        server.pid,
    )
    assert rig.effects() == ["limits 25% 6144M"]  # not known, so they are set again
    rig.assert_holds(A, B)


def test_recover_removes_folders_of_shares_that_nobody_wants(rig: MpsRig) -> None:
    rig.apply(A)
    rig.world.folders["left"] = (OTHER, rig.world.daemons[GPU])
    rig.restart()
    rig.supervisor.recover()
    assert set(rig.world.folders) == {"a"}


def test_recover_gives_back_what_an_ended_record_left(rig: MpsRig) -> None:
    rig.apply(A)
    rig.world.store.clear()
    rig.restart()
    rig.supervisor.recover()
    rig.tend()
    rig.clock.advance(ORPHAN_GRACE_S)
    assert rig.tend().phase is MpsPhase.FREE
    assert rig.world.modes[GPU] is ComputeMode.DEFAULT
    rig.assert_free()
    assert rig.world.folders == {}


@pytest.mark.parametrize("told", [(A, B), (A,), (A, B, BIG)])
def test_daemon_whose_record_is_lost_goes_on_when_its_shares_are_told_in_time(
    rig: MpsRig, told: tuple[GpuShare, ...]
) -> None:
    rig.apply(A, B)
    daemon, server = rig.world.daemons[GPU], rig.world.servers[GPU]
    rig.world.store.clear()
    rig.restart()
    rig.effects()
    rig.supervisor.recover()
    for _ in range(2):
        state = rig.tend()
        assert (state.phase, state.shares) == (MpsPhase.STARTING, ())
        rig.clock.advance(ORPHAN_GRACE_S / 2 - 1)
    assert rig.effects() == []
    rig.apply(*told)
    rig.assert_holds(*told)
    assert (rig.world.daemons[GPU], rig.world.servers[GPU].pid) == (daemon, server.pid)
    rig.apply()
    rig.assert_free()


def test_daemon_whose_record_is_lost_ends_at_once_when_there_are_no_shares(rig: MpsRig) -> None:
    rig.apply(A)
    rig.world.store.clear()
    rig.restart()
    rig.supervisor.recover()
    rig.tend()
    rig.apply()
    rig.assert_free()


def test_recover_starts_anew_what_died_with_the_supervisor(rig: MpsRig) -> None:
    rig.apply(A)
    before = rig.world.daemons[GPU].pid
    rig.supervisor.close()
    rig.world.kill_daemon(GPU)
    rig.restart()
    rig.supervisor.recover()
    assert rig.tend().daemon_pid not in {None, before}
    rig.assert_holds(A)


def test_apply_is_refused_for_later_when_the_supervisor_ends(rig: MpsRig) -> None:
    rig.supervisor.close()
    with pytest.raises(NotReady, match="stopping"):
        rig.apply(A)


def test_shares_hold_over_a_restart_when_all_was_wiped_and_started_anew(rig: MpsRig) -> None:
    rig.apply(A, B)
    rig.world.store.clear()
    rig.world.folders.clear()
    rig.world.kill_daemon(GPU)
    rig.tend()
    daemon = rig.world.daemons[GPU]
    rig.restart()
    rig.supervisor.recover()
    rig.tend()
    rig.assert_holds(A, B)
    assert rig.world.daemons[GPU] == daemon
