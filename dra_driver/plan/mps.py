"""What has to be done so that one GPU's MPS daemon holds the shares that are desired.

The order of taking a GPU: nobody else has it, daemon, ceilings, exclusive mode, server, proof,
shares. Giving it back is the reverse; the daemon ends before the compute mode is restored, because
for a moment in between the GPU would be open to all while its server still owns it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import (
    ComputeMode,
    DaemonProcess,
    DesiredShares,
    MpsLimits,
    MpsServer,
    ServerStatus,
)
from dra_driver.model.share import Expose, GpuShare, Sharing
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
from dra_driver.plan.tiers import driver_branch

_RETRY_FIRST_S = 1.0
_RETRY_SECOND_S = 5.0
_RETRY_LAST_S = 60.0
_PRIVILEGED_SOCKET_BRANCH = 550
_MULTI_USER_BRANCH = 555


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsRules:
    """How MPS is run on a GPU, as its driver and the settings have it.

    Attributes:
        multi_user: the daemon gets the flag by which one server serves all users.
        uid: of the server's owner, hence of its clients where it is not multi-user.
        prove: it is worth knowing whether clients connect through `control` alone.
    """

    multi_user: bool
    uid: int = 0
    prove: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsWanted:
    """Desired state of one GPU.

    Attributes:
        held: the GPU is wanted even without shares, to be proved.
    """

    desired: DesiredShares
    rules: MpsRules
    held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsObserved:
    """What there is.

    Attributes:
        mode: None: it could not be read.
        daemon: the one of ours that runs.
        server: that daemon's.
        renew: the server is to be replaced, whatever its status.
        limits: ceilings of the daemon and its server; None: not known.
        exposed: shares whose folder leads to `daemon`; empty where there is none.
        stale: shares that have, or may have, a folder and are not desired.
    """

    mode: ComputeMode | None
    daemon: DaemonProcess | None = None
    server: MpsServer | None = None
    renew: bool = False
    limits: MpsLimits | None = None
    exposed: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()


def mps_rules(
    driver_version: str | None, *, single_uid: int | None, expose_folder: bool
) -> MpsRules:
    """Give the rules for a driver; what is not known counts as missing.

    Below 550 every socket takes settings, so there is nothing to prove. The multi-user flag exists
    from 555. Source: control daemons of 535.261, 550.163 and 555.58 as measured.
    """
    branch = driver_branch(driver_version) or 0
    multi_user = branch >= _MULTI_USER_BRANCH
    return MpsRules(
        multi_user=multi_user,
        uid=0 if multi_user or single_uid is None else single_uid,
        prove=branch >= _PRIVILEGED_SOCKET_BRANCH and not expose_folder,
    )


def mps_shares(shares: tuple[GpuShare, ...]) -> tuple[GpuShare, ...]:
    """Give the shares that MPS enforces, by id."""
    chosen = (share for share in shares if share.sharing is Sharing.MPS)
    return tuple(sorted(chosen, key=lambda share: share.id))


def ceilings(shares: tuple[GpuShare, ...]) -> MpsLimits:
    """Give the lowest ceilings that let each of these shares have what it may use."""
    if not shares:
        return MpsLimits()
    return MpsLimits(
        compute_percent=max(share.compute_percent for share in shares),
        memory_mib=max(share.memory_mib for share in shares),
    )


def retry_pause_s(failures: int) -> float:
    """Give the pause after the n-th failure in a row: 1 s, then 5 s, doubling up to 60 s."""
    if failures <= 1:
        return _RETRY_FIRST_S
    return min(_RETRY_LAST_S, _RETRY_SECOND_S * float(1 << min(failures - 2, 10)))


def proof_share(gpu: GpuUuid) -> str:
    """Name of the share folder through which a GPU is proved."""
    return f"proof-{gpu}"


def next_steps(wanted: MpsWanted, observed: MpsObserved) -> tuple[MpsStep, ...]:
    """Give the steps from what there is to what is wanted, in order; none where it is there.

    None also where a server at fault has to be waited for, until `renew` is observed.
    """
    if wanted.desired.shares or wanted.held:
        return _hold(wanted, observed)
    return _free(wanted.desired, observed)


def _hold(wanted: MpsWanted, observed: MpsObserved) -> tuple[MpsStep, ...]:
    desired, rules = wanted.desired, wanted.rules
    through_socket = _through_socket(desired)
    # Whatever is hidden is hidden first, whatever is exposed comes last: in between the ceilings
    # may move both ways and still bound all that is exposed.
    steps: list[MpsStep] = _hides(observed, through_socket)
    if desired.mode_before is None:
        steps.append(TakeGpu())
    if observed.daemon is None:
        steps.append(StartDaemon(multi_user=rules.multi_user))
    ceiling = ceilings(desired.shares)
    if observed.daemon is None or observed.limits != ceiling:
        steps.append(SetLimits(limits=ceiling))
    if observed.mode is not ComputeMode.EXCLUSIVE_PROCESS:
        steps.append(SetExclusive())
    server = observed.server if observed.daemon is not None else None
    if server is not None and server.status is ServerStatus.FAULT and not observed.renew:
        return tuple(steps)
    steps += _server_steps(server, rules, renew=observed.renew)
    if _is_worth_proving(wanted, observed):
        steps.append(Prove())
    steps += (ExposeShare(share=share) for share in sorted(through_socket - observed.exposed))
    return tuple(steps)


def _free(desired: DesiredShares, observed: MpsObserved) -> tuple[MpsStep, ...]:
    steps: list[MpsStep] = _hides(observed, frozenset())
    before = desired.mode_before
    if observed.daemon is not None:
        steps.append(QuitDaemon())
        if before is None and observed.mode is ComputeMode.EXCLUSIVE_PROCESS:
            # The record of a daemon of ours is lost, so the mode is of our making.
            steps.append(RestoreMode(mode=ComputeMode.DEFAULT))
    if before is not None:
        if observed.mode is not before:
            steps.append(RestoreMode(mode=before))
        steps.append(Forget())
    return tuple(steps)


def _hides(observed: MpsObserved, wanted: frozenset[str]) -> list[MpsStep]:
    remains = (observed.exposed | observed.stale) - wanted
    return [HideShare(share=share) for share in sorted(remains)]


def _server_steps(server: MpsServer | None, rules: MpsRules, *, renew: bool) -> list[MpsStep]:
    start: list[MpsStep] = [StartServer(uid=rules.uid), AwaitServer()]
    if server is None:
        return start
    if renew:
        return [StopServer(force=server.status is not ServerStatus.ACTIVE), *start]
    return [AwaitServer()] if server.status is ServerStatus.INITIALIZING else []


def _is_worth_proving(wanted: MpsWanted, observed: MpsObserved) -> bool:
    """One that could not be tried is tried again with the next daemon."""
    proof = wanted.desired.proof
    if not wanted.rules.prove:
        return False
    return proof is None or (proof.control_only is None and observed.daemon is None)


def _through_socket(desired: DesiredShares) -> frozenset[str]:
    return frozenset(share.id for share in desired.shares if share.expose is Expose.CONTROL)
