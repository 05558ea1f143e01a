"""The order of what is done to a GPU, whatever happens in between."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.mps import (
    ComputeMode,
    DaemonProcess,
    DesiredShares,
    MpsLimits,
    ServerStatus,
)
from dra_driver.model.share import Expose, GpuShare, Sharing
from dra_driver.plan.mps import (
    MpsObserved,
    MpsWanted,
    ceilings,
    mps_rules,
    mps_shares,
    next_steps,
    retry_pause_s,
)
from dra_driver.plan.mps_steps import (
    AwaitServer,
    ExposeShare,
    Forget,
    HideShare,
    Prove,
    QuitDaemon,
    RestoreMode,
    SetExclusive,
    SetLimits,
    StartDaemon,
    StartServer,
    StopServer,
    TakeGpu,
)
from tests.unit.mps_world import GPU, RULES, World, mps_share

# An id stands for one share of one size: shares never change while they are there.
_SHARES = tuple(
    mps_share(f"s{n}", percent, memory, expose)
    for n, (percent, memory, expose) in enumerate(
        (
            (10, 40000, Expose.CONTROL),
            (90, 1000, Expose.CONTROL),
            (50, 20000, Expose.CONTROL),
            (100, 60000, Expose.FOLDER),
        )
    )
)
_SETS = st.sets(st.sampled_from(_SHARES)).map(lambda found: mps_shares(tuple(found)))
_MISHAPS = st.sampled_from(("none", "crash", "daemon dies", "server dies", "fault", "mode"))


@given(
    before=st.sampled_from((ComputeMode.DEFAULT, ComputeMode.EXCLUSIVE_PROCESS)),
    story=st.lists(st.tuples(_SETS, _MISHAPS, st.integers(0, 9)), min_size=1, max_size=8),
)
def test_next_steps_keep_the_laws_of_order_when_anything_happens_between_two_steps(
    before: ComputeMode, story: list[tuple[tuple[GpuShare, ...], str, int]]
) -> None:
    world = World(before)
    for shares, mishap, after in story:
        world.desired = replace(world.desired, shares=shares)
        steps = world.plan()
        if mishap != "none":
            steps = steps[:after]
        for step in steps:
            world.run(step)
        _happens(world, mishap)
        for step in world.plan(forgot=mishap == "crash"):
            world.run(step)
        world.converged()
        assert world.plan() == ()


def _happens(world: World, mishap: str) -> None:
    match mishap:
        case "daemon dies":
            world.end_daemon()
        case "server dies":
            world.server, world.renew = None, False
        case "fault" if world.server is not None:
            world.server = replace(world.server, status=ServerStatus.FAULT)
            world.renew = True
        case "mode" if world.desired.mode_before is not None:
            world.mode = ComputeMode.DEFAULT


def test_next_steps_take_a_gpu_in_the_order_that_lets_nobody_in_between() -> None:
    world = World(ComputeMode.DEFAULT)
    world.desired = replace(world.desired, shares=(mps_share("a", 25, 6144),))
    assert world.plan() == (
        TakeGpu(),
        StartDaemon(multi_user=True),
        SetLimits(limits=MpsLimits(compute_percent=25, memory_mib=6144)),
        SetExclusive(),
        StartServer(uid=0),
        AwaitServer(),
        Prove(),
        ExposeShare(share="a"),
    )


def test_next_steps_give_a_gpu_back_by_quitting_first() -> None:
    world = World(ComputeMode.DEFAULT)
    world.desired = replace(world.desired, shares=(mps_share("a", 25, 6144),))
    for step in world.plan():
        world.run(step)
    world.desired = replace(world.desired, shares=())
    assert world.plan() == (
        HideShare(share="a"),
        QuitDaemon(),
        RestoreMode(mode=ComputeMode.DEFAULT),
        Forget(),
    )


def test_next_steps_are_none_for_a_gpu_that_nobody_wants() -> None:
    assert World(ComputeMode.PROHIBITED).plan() == ()


def test_next_steps_wait_when_a_server_at_fault_has_clients() -> None:
    world = World(ComputeMode.DEFAULT)
    world.desired = replace(world.desired, shares=(mps_share("a", 25, 6144),))
    for step in world.plan():
        world.run(step)
    assert world.server is not None
    world.server = replace(world.server, status=ServerStatus.FAULT)
    assert world.plan() == ()
    world.renew = True
    assert world.plan() == (StopServer(force=True), StartServer(uid=0), AwaitServer())


def test_next_steps_restore_the_mode_when_the_record_of_our_daemon_is_lost() -> None:
    observed = MpsObserved(
        mode=ComputeMode.EXCLUSIVE_PROCESS, daemon=DaemonProcess(pid=1, started=1)
    )
    wanted = MpsWanted(desired=DesiredShares(gpu=GPU), rules=RULES)
    assert next_steps(wanted, observed) == (QuitDaemon(), RestoreMode(mode=ComputeMode.DEFAULT))


def test_ceilings_are_the_largest_of_each_dimension() -> None:
    shares = (mps_share("a", 25, 6144), mps_share("b", 100, 1024))
    assert ceilings(shares) == MpsLimits(compute_percent=100, memory_mib=6144)
    assert ceilings(()) == MpsLimits()


def test_mps_shares_leave_out_what_time_slicing_enforces() -> None:
    sliced = replace(mps_share("b", 10, 10), sharing=Sharing.TIME_SLICING)
    assert mps_shares((mps_share("c", 1, 1), sliced, mps_share("a", 1, 1))) == (
        mps_share("a", 1, 1),
        mps_share("c", 1, 1),
    )


@pytest.mark.parametrize(
    ("driver", "uid", "expected"),
    [
        ("535.261.03", None, (False, 0, False)),
        ("535.261.03", 1000, (False, 1000, False)),
        ("550.163.01", 1000, (False, 1000, True)),
        ("555.58.02", 1000, (True, 0, True)),
        ("580.95.05", None, (True, 0, True)),
        (None, 1000, (False, 1000, False)),
    ],
)
def test_mps_rules_follow_the_driver_branch(
    driver: str | None, uid: int | None, expected: tuple[bool, int, bool]
) -> None:
    rules = mps_rules(driver, single_uid=uid, expose_folder=False)
    assert (rules.multi_user, rules.uid, rules.prove) == expected


def test_mps_rules_prove_nothing_when_the_folder_is_exposed_anyway() -> None:
    assert not mps_rules("580.1", single_uid=None, expose_folder=True).prove


def test_retry_pause_grows_up_to_a_minute() -> None:
    pauses = [retry_pause_s(n) for n in (1, 2, 3, 4, 5, 6, 1000)]
    assert pauses == [1.0, 5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
