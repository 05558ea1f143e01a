"""What to think of a node's GPUs, of MPS on it and of its API server.

Sources: CUDA MPS guide and cuda-checkpoint's README for what appears in which driver; control
daemons of 535.261, 550.163 and 555.58 as measured.
"""

from __future__ import annotations

from typing import assert_never

from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import GpuFacts, GpuUuid, Inventory
from dra_driver.model.doctor import Finding, ok, problem, warning
from dra_driver.model.health import HealthStatus
from dra_driver.model.mps import ComputeMode, GpuSharing, MpsPhase
from dra_driver.plan.probe import OLDEST_VERSION
from dra_driver.plan.tiers import driver_branch

_MPS_LIMITS_BRANCH = 495
_PRIVILEGED_BRANCH = 550
_MULTI_USER_BRANCH = 555
_CHECKPOINT_BRANCH = 570
_MIGRATION_BRANCH = 580
_IPC_BRANCH = 610

_UPGRADE = "upgrade the NVIDIA driver; 580 or later has all that this driver uses"


def judge_driver(inventory: Inventory) -> tuple[Finding, ...]:
    """The driver, and what its branch allows."""
    version = inventory.driver_version
    branch = driver_branch(version)
    name = f"{version or 'of unknown version'}{', simulated' if inventory.simulated else ''}"
    if branch is None:
        return (
            warning("driver", f"the driver is loaded, but its version is {version!r}", _UPGRADE),
        )
    return (
        ok("driver", f"{name}, CUDA {inventory.cuda_version or 'unknown'}"),
        _tier(branch),
        _users(branch),
        _checkpoint(branch),
    )


def judge_gpus(inventory: Inventory) -> tuple[Finding, ...]:
    """Each GPU, readable or not."""
    found = [_gpu(gpu, inventory) for gpu in inventory.gpus]
    found += [problem(f"gpu {each.label}", each.text) for each in inventory.unreadable]
    if not found:
        return (warning("gpus", "the driver is loaded and lists no GPU", "check lspci and dmesg"),)
    return tuple(found)


def judge_mode(
    gpu: GpuUuid, mode: ComputeMode, *, shares: tuple[str, ...] | None, foreign: tuple[int, ...]
) -> Finding:
    """Judge the compute mode of a GPU.

    `shares` are this GPU's, None where nobody could tell; `foreign` are MPS processes of others.
    """
    subject = f"compute mode {gpu}"
    match mode:
        case ComputeMode.PROHIBITED:
            return problem(subject, "Prohibited: no process can use the GPU", _give_back(gpu))
        case ComputeMode.DEFAULT if shares:
            return warning(subject, f"Default, though {len(shares)} shares are enforced on the GPU")
        case ComputeMode.DEFAULT:
            return ok(subject, "Default")
        case ComputeMode.EXCLUSIVE_PROCESS:
            return _exclusive(gpu, shares, foreign)
        case _ as never:
            assert_never(never)


def judge_foreign(gpu: GpuUuid, pids: tuple[int, ...]) -> Finding:
    subject = f"other MPS {gpu}"
    if not pids:
        return ok(subject, "no MPS daemon or server of others")
    listed = ", ".join(map(str, pids))
    return problem(
        subject,
        f"MPS processes of others may use this GPU: {listed}",
        "end them, or keep other drivers (NVIDIA's device plugin, NVIDIA's DRA driver) off this "
        "node; the GPU is offered whole meanwhile",
    )


def judge_sharing(state: GpuSharing) -> Finding:
    subject = f"sharing {state.gpu}"
    about = f"{state.phase}, {len(state.shares)} shares"
    if state.daemon_pid is not None:
        about += f", daemon {state.daemon_pid}, {state.restarts} restarts"
    about += ", simulated" if state.simulated else ""
    if state.phase is MpsPhase.FAULT:
        return problem(subject, f"{about}: {state.message}", "see the log of gpuslice mpsd")
    if state.refusal:
        return warning(subject, f"{about}; MPS cannot run on it: {state.refusal}")
    if state.proof is not None and state.proof.control_only is not True:
        return warning(subject, f"{about}; tier cooperative: {state.proof.reason}")
    return ok(subject, f"{about}: {state.message}" if state.message else about)


def judge_api(capability: ApiCapability) -> tuple[Finding, ...]:
    """An API server's version and what it keeps."""
    name = capability.git_version or f"{capability.major}.{capability.minor}"
    if (capability.major, capability.minor) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        return (problem("api server", f"Kubernetes {name}", f"upgrade it to {oldest} or later"),)
    return (
        ok("api server", f"Kubernetes {name}"),
        ok("DRAConsumableCapacity", "on: any percentage and amount of memory is offered")
        if capability.consumable
        else warning(
            "DRAConsumableCapacity",
            "off: only fixed slots are offered (--static-layout)",
            "switch the feature gate on in the API server, the scheduler and the kubelet, or use "
            "Kubernetes 1.36",
        ),
        ok("DRADeviceTaints", "on: unhealthy GPUs are tainted")
        if capability.taints
        else warning(
            "DRADeviceTaints",
            "off: the scheduler goes on using unhealthy GPUs",
            "switch the feature gate on in the API server and the scheduler",
        ),
    )


def _exclusive(gpu: GpuUuid, shares: tuple[str, ...] | None, foreign: tuple[int, ...]) -> Finding:
    subject, mend = f"compute mode {gpu}", _give_back(gpu)
    if shares:
        return ok(subject, "ExclusiveProcess, held by gpuslice for its shares")
    if shares is None:
        text = "ExclusiveProcess, and without gpuslice mpsd it is not known for whom"
        return warning(subject, text, f"start gpuslice mpsd; or {mend}")
    if foreign:
        return problem(subject, "ExclusiveProcess, held for the MPS daemon of others", mend)
    return problem(subject, "ExclusiveProcess, left over: no share of ours needs it", mend)


def _give_back(gpu: GpuUuid) -> str:
    return f"nvidia-smi -i {gpu} -c DEFAULT gives it back, once nothing uses the GPU"


def _tier(branch: int) -> Finding:
    if branch < _MPS_LIMITS_BRANCH:
        return problem("tiers", f"MPS of driver branch {branch} has no memory limits", _UPGRADE)
    if branch < _PRIVILEGED_BRANCH:
        text = f"cooperative at most: MPS of driver branch {branch} lets tenants change limits"
        return warning("tiers", text, _UPGRADE)
    return ok("tiers", "standard, once a client is proved to connect through `control` alone")


def _users(branch: int) -> Finding:
    if branch < _MULTI_USER_BRANCH:
        return warning(
            "users",
            f"MPS of driver branch {branch} serves one user id at a time",
            "give --mps-single-uid, or upgrade the NVIDIA driver to 555 or later",
        )
    return ok("users", "pods of several user ids can share a GPU")


def _checkpoint(branch: int) -> Finding:
    subject = "checkpoint"
    if branch < _CHECKPOINT_BRANCH:
        text = f"driver branch {branch} cannot checkpoint GPU processes in a way that is used here"
        return warning(subject, text, "upgrade the NVIDIA driver to 570 or later")
    if branch < _MIGRATION_BRANCH:
        return ok(subject, "whole GPUs, back onto the same GPU; another one from 580")
    ipc = "" if branch < _IPC_BRANCH else ", CUDA IPC too"
    return ok(subject, f"whole GPUs, onto another GPU of the same type too{ipc}")


def _gpu(gpu: GpuFacts, inventory: Inventory) -> Finding:
    subject = f"gpu {gpu.uuid}"
    name = gpu.product_name or "unnamed"
    if gpu.mig_enabled:
        mend = f"nvidia-smi -i {gpu.uuid} -mig 0 switches it off, once nothing uses the GPU"
        return warning(subject, f"{name}, in MIG mode: it is left out", mend)
    health = next((each for each in inventory.health if each.uuid == gpu.uuid), None)
    if health is not None and health.status is HealthStatus.UNHEALTHY:
        return problem(subject, f"{name}, unhealthy: {health.message}")
    return ok(subject, name)
