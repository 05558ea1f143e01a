"""Between values and the messages of `gpuslice.mpsd.v1alpha1`, as a client of it sees them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase, Proof
from dra_driver.model.share import Expose, GpuShare

_PHASES = {
    mpsd.PHASE_FREE: MpsPhase.FREE,
    mpsd.PHASE_STARTING: MpsPhase.STARTING,
    mpsd.PHASE_ACTIVE: MpsPhase.ACTIVE,
    mpsd.PHASE_DRAINING: MpsPhase.DRAINING,
    mpsd.PHASE_FAULT: MpsPhase.FAULT,
}


def apply_request(gpu: GpuUuid, shares: Iterable[GpuShare]) -> mpsd.ApplyRequest:
    by_id = sorted(shares, key=lambda share: share.id)
    return mpsd.ApplyRequest(gpu_uuid=gpu, shares=[_share(share) for share in by_id])


def states_of(message: mpsd.NodeState) -> tuple[GpuSharing, ...]:
    """Give the states by UUID."""
    return tuple(sorted(map(_state, message.gpus), key=lambda state: state.gpu))


def _share(share: GpuShare) -> mpsd.Share:
    return mpsd.Share(
        id=share.id,
        compute_percent=share.compute_percent,
        memory_mib=share.memory_mib,
        priority=share.priority,
        expose=_expose(share.expose),
    )


def _expose(expose: Expose) -> mpsd.Expose.ValueType:
    match expose:
        case Expose.CONTROL:
            return mpsd.EXPOSE_CONTROL
        case Expose.FOLDER:
            return mpsd.EXPOSE_FOLDER
        case _ as never:
            assert_never(never)


def _state(message: mpsd.GpuState) -> GpuSharing:
    return GpuSharing(
        gpu=GpuUuid(message.gpu_uuid),
        # A phase of a newer release is none that shares can be trusted in.
        phase=_PHASES.get(message.phase, MpsPhase.FAULT),
        shares=tuple(sorted(message.shares)),
        message=message.message,
        daemon_pid=message.daemon_pid or None,
        server_pid=message.server_pid or None,
        restarts=message.restarts,
        clients=message.clients if message.HasField("clients") else None,
        proof=_proof(message.proof) if message.HasField("proof") else None,
        multi_user=message.multi_user,
        refusal=message.refusal,
        simulated=message.simulated,
    )


def _proof(message: mpsd.Proof) -> Proof:
    control_only = message.control_only if message.HasField("control_only") else None
    return Proof(control_only=control_only, reason=message.reason)
