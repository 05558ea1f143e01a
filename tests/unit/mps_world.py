"""One GPU under MPS as a value, on which planned steps are run; each checks the laws of order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import assert_never

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
from dra_driver.plan.mps import MpsObserved, MpsWanted, ceilings, mps_rules, next_steps
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


def mps_share(
    name: str, percent: int, memory_mib: int, expose: Expose = Expose.CONTROL
) -> GpuShare:
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

    def run(self, step: MpsStep) -> None:
        match step:
            case TakeGpu() | SetExclusive() | RestoreMode() | Forget():
                self._run_on_gpu(step)
            case StartServer() | AwaitServer() | StopServer() | Prove():
                self._run_on_server(step)
            case StartDaemon():
                assert self.daemon is None
                assert self.desired.mode_before is not None
                self.daemons += 1
                self.daemon, self.server = DaemonProcess(pid=self.daemons, started=1), None
                self.limits = MpsLimits()
            case SetLimits(limits=limits):
                assert self.daemon is not None
                self.limits = limits
            case QuitDaemon():
                self.end_daemon()
            case ExposeShare(share=share):
                self._expose(share)
            case HideShare(share=share):
                self.leads.pop(share, None)
            case _:
                assert_never(step)
        self.check()

    def _run_on_gpu(self, step: TakeGpu | SetExclusive | RestoreMode | Forget) -> None:
        match step:
            case TakeGpu():
                self.desired = replace(self.desired, mode_before=self.mode)
            case SetExclusive():
                assert self.desired.mode_before is not None
                self.mode = ComputeMode.EXCLUSIVE_PROCESS
            case RestoreMode(mode=mode):
                assert self.daemon is None
                assert mode is self.before
                self.mode = mode
            case Forget():
                assert self.mode is self.before
                assert self.daemon is None
                self.desired = replace(self.desired, mode_before=None)

    def _run_on_server(self, step: StartServer | AwaitServer | StopServer | Prove) -> None:
        match step:
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
                assert self.server is not None
                self.desired = replace(self.desired, proof=Proof(control_only=True))

    def _expose(self, share: str) -> None:
        assert self.server is not None
        assert self.server.status is ServerStatus.ACTIVE
        assert self.daemon is not None
        self.leads[share] = self.daemon
        self.needs[share] = next(each for each in self.desired.shares if each.id == share)

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
