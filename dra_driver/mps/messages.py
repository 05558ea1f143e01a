"""Between the messages of `gpuslice.mpsd.v1alpha1` and values, as the supervisor's side sees them.

Nothing of a request is believed: what passes becomes names of files and settings of a daemon.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import assert_never

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing, MpsPhase, Proof
from dra_driver.model.share import Expose, GpuShare, Sharing

MEMORY_MIB_MAX = 1 << 31

_GPU = re.compile(r"GPU-[0-9A-Za-z-]{1,60}")
_SHARE = re.compile(r"[A-Za-z0-9-]{1,80}")
_PID_MAX = 1 << 22  # PID_MAX_LIMIT of 64-bit Linux
_TEXT_MAX = 1024
_QUOTED_MAX = 96


class InvalidMessage(ValueError):  # noqa: N818 - reads as the verdict that it is
    """A field of a request is impossible; the text names it and its value."""


def gpu_of(uuid: str) -> GpuUuid:
    """Raises InvalidMessage."""
    if not _GPU.fullmatch(uuid):
        raise InvalidMessage(
            f"gpu_uuid is {_quoted(uuid)}: give the UUID of a GPU as NVML spells it, GPU-…"
        )
    return GpuUuid(uuid)


def shares_of(request: mpsd.ApplyRequest) -> tuple[GpuShare, ...]:
    """Give the shares by id.

    Raises:
        InvalidMessage: of the first field that is impossible, in the order of the request.
    """
    gpu = gpu_of(request.gpu_uuid)
    shares: dict[str, GpuShare] = {}
    for place, message in enumerate(request.shares):
        share = _share(gpu, message, f"shares[{place}]")
        if share.id in shares:
            raise InvalidMessage(
                f"shares[{place}].id is {_quoted(share.id)}, which another share of GPU {gpu} has"
                " already: ids are unique"
            )
        shares[share.id] = share
    return tuple(shares[each] for each in sorted(shares))


def client_of(request: mpsd.TerminateClientRequest) -> tuple[GpuUuid, int]:
    """Give the GPU and the pid. Raises InvalidMessage."""
    gpu = gpu_of(request.gpu_uuid)
    # 1 is the host's init, which no request may name.
    if not 1 < request.pid <= _PID_MAX:
        raise InvalidMessage(f"pid is {request.pid}: give a process id of the host from 2 on")
    return gpu, request.pid


def node_state(states: Iterable[GpuSharing]) -> mpsd.NodeState:
    by_gpu = sorted(states, key=lambda state: state.gpu)
    return mpsd.NodeState(gpus=[gpu_state(state) for state in by_gpu])


def gpu_state(state: GpuSharing) -> mpsd.GpuState:
    return mpsd.GpuState(
        gpu_uuid=state.gpu,
        phase=_phase(state.phase),
        shares=sorted(state.shares),
        message=_short(state.message),
        daemon_pid=state.daemon_pid or 0,
        server_pid=state.server_pid or 0,
        restarts=state.restarts,
        clients=state.clients,
        proof=None if state.proof is None else _proof(state.proof),
        multi_user=state.multi_user,
        refusal=_short(state.refusal),
        simulated=state.simulated,
    )


def _share(gpu: GpuUuid, message: mpsd.Share, where: str) -> GpuShare:
    if not _SHARE.fullmatch(message.id):
        raise InvalidMessage(
            f"{where}.id is {_quoted(message.id)}: give 1 to 80 letters, digits and dashes"
        )
    name = f"{where} ({message.id})"
    _within(name, "compute_percent", message.compute_percent, 1, 100)
    _within(name, "memory_mib", message.memory_mib, 1, MEMORY_MIB_MAX)
    _within(name, "priority", message.priority, 0, 1)
    return GpuShare(
        id=message.id,
        gpu=gpu,
        sharing=Sharing.MPS,
        compute_percent=message.compute_percent,
        memory_mib=message.memory_mib,
        priority=message.priority,
        expose=_expose(name, message.expose),
    )


def _within(name: str, field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidMessage(f"{name}: {field} is {value}: give {least} to {most}")


def _expose(name: str, value: mpsd.Expose.ValueType) -> Expose:
    if value == mpsd.EXPOSE_CONTROL:
        return Expose.CONTROL
    if value == mpsd.EXPOSE_FOLDER:
        return Expose.FOLDER
    raise InvalidMessage(f"{name}: expose is {value}: give EXPOSE_CONTROL or EXPOSE_FOLDER")


def _phase(phase: MpsPhase) -> mpsd.Phase.ValueType:
    match phase:
        case MpsPhase.FREE:
            return mpsd.PHASE_FREE
        case MpsPhase.STARTING:
            return mpsd.PHASE_STARTING
        case MpsPhase.ACTIVE:
            return mpsd.PHASE_ACTIVE
        case MpsPhase.DRAINING:
            return mpsd.PHASE_DRAINING
        case MpsPhase.FAULT:
            return mpsd.PHASE_FAULT
        case _ as never:
            assert_never(never)


def _proof(proof: Proof) -> mpsd.Proof:
    return mpsd.Proof(control_only=proof.control_only, reason=_short(proof.reason))


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}…")


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
