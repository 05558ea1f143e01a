"""The order of what is done to a GPU, whatever happens in between."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.mps import (
    ComputeMode,
    DaemonProcess,
    DesiredShares,
    MpsLimits,
    MpsServer,
    Proof,
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
    MpsStep,
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
from tests.builders import uuid

GPU = uuid(0)
RULES = mps_rules("570.1", single_uid=None, expose_folder=False)


def _share(name: str, percent: int, memory_mib: int, expose: Expose = Expose.CONTROL) -> GpuShare:
    return GpuShare(
        id=name,
        gpu=GPU,
        sharing=Sharing.MPS,
        compute_percent=percent,
        memory_mib=memory_mib,
        expose=expose,
    )


@dataclass
class World:
    """One GPU and what is kept about it; every step checks the laws of order."""

    before: ComputeMode
    desired: DesiredShares = field(default_factory=lambda: DesiredShares(gpu=GPU))
    mode: ComputeMode = ComputeMode.DEFAULT
    daemon: DaemonProcess | None = None
    server: MpsServer | None = None
    limits: MpsLimits = field(default_factory=MpsLimits)
    needs: dict[str, GpuShare] = field(default_factory=dict)  # of all shares with a folder
    leads: dict[str, DaemonProcess] = field(default_factory=dict)
    renew: bool = False
    daemons: int = 0

    def __post_init__(self) -> None:
        self.mode = self.before

    def plan(self, *, forgot: bool = False) -> tuple[MpsStep, ...]:
        wanted = {share.id for share in self.desired.shares}
        observed = MpsObserved(
            mode=self.mode,
            daemon=self.daemon,
            server=self.server,
            renew=self.renew,
            limits=None if forgot or self.daemon is None else self.limits,
            exposed=frozenset(s for s, to in self.leads.items() if to == self.daemon),
            stale=frozenset(self.leads) - wanted,
        )
        return next_steps(MpsWanted(desired=self.desired, rules=RULES), observed)

    def run(self, step: MpsStep) -> None:  # noqa: C901, PLR0912 - a flat table
        match step:
            case TakeGpu():
                self.desired = replace(self.desired, mode_before=self.mode)
            case StartDaemon():
                assert self.daemon is None
                assert self.desired.mode_before is not None
                self.daemons += 1
                self.daemon, self.server = DaemonProcess(pid=self.daemons, started=1), None
                self.limits = MpsLimits()
            case SetLimits(limits=limits):
                assert self.daemon is not None
                self.limits = limits
            case SetExclusive():
                assert self.desired.mode_before is not None
                self.mode = ComputeMode.EXCLUSIVE_PROCESS
            case StartServer():
                assert self.mode is ComputeMode.EXCLUSIVE_PROCESS
                assert self.daemon is not None
                assert self.server is None
                self.server = MpsServer(pid=1, status=ServerStatus.INITIALIZING)
            case AwaitServer():
                assert self.server is not None
                self.server = replace(self.server, status=ServerStatus.ACTIVE)
            case StopServer():
                assert self.server is not None
                self.server, self.renew = None, False
            case Prove():
                self.desired = replace(self.desired, proof=Proof(control_only=True))
            case ExposeShare(share=share):
                assert self.server is not None
                assert self.server.status is ServerStatus.ACTIVE
                assert self.daemon is not None
                self.leads[share] = self.daemon
                self.needs[share] = next(s for s in self.desired.shares if s.id == share)
            case HideShare(share=share):
                self.leads.pop(share, None)
            case QuitDaemon():
                self.end_daemon()
            case RestoreMode(mode=mode):
                assert self.daemon is None
                assert mode is self.before
                self.mode = mode
            case Forget():
                assert self.mode is self.before
                assert self.daemon is None
                self.desired = replace(self.desired, mode_before=None)
            case _:
                assert_never(step)
        self.check()

    def end_daemon(self) -> None:
        self.daemon, self.server, self.renew = None, None, False

    def check(self) -> None:
        """All that tenants can reach is bounded by what each of them may have."""
        for share, to in self.leads.items():
            if to == self.daemon:
                assert self.limits.compute_percent >= self.needs[share].compute_percent
                assert self.limits.memory_mib is not None
                assert self.limits.memory_mib >= self.needs[share].memory_mib

    def converged(self) -> None:
        if not self.desired.shares:
            assert (self.daemon, self.server, self.mode) == (None, None, self.before)
            assert self.leads == {}
            assert self.desired.mode_before is None
            return
        assert self.server is not None
        assert self.server.status is ServerStatus.ACTIVE
        assert self.mode is ComputeMode.EXCLUSIVE_PROCESS
        assert self.limits == ceilings(self.desired.shares)
        control = {s.id for s in self.desired.shares if s.expose is Expose.CONTROL}
        assert self.leads == dict.fromkeys(control, self.daemon)


# An id stands for one share of one size: shares never change while they are there.
_SHARES = tuple(
    _share(f"s{n}", percent, memory, expose)
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
    world.desired = replace(world.desired, shares=(_share("a", 25, 6144),))
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
    world.desired = replace(world.desired, shares=(_share("a", 25, 6144),))
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
    world.desired = replace(world.desired, shares=(_share("a", 25, 6144),))
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
    shares = (_share("a", 25, 6144), _share("b", 100, 1024))
    assert ceilings(shares) == MpsLimits(compute_percent=100, memory_mib=6144)
    assert ceilings(()) == MpsLimits()


def test_mps_shares_leave_out_what_time_slicing_enforces() -> None:
    sliced = replace(_share("b", 10, 10), sharing=Sharing.TIME_SLICING)
    assert mps_shares((_share("c", 1, 1), sliced, _share("a", 1, 1))) == (
        _share("a", 1, 1),
        _share("c", 1, 1),
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
