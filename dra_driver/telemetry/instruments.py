"""All metrics of this driver, declared once. Names get the prefix `gpuslice_`.

Labels have few values. Those of a claim and its namespace stand in gauges alone whose series end
with the claim; there is none for a pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import get_args

from dra_driver.errors import Reason
from dra_driver.model.checkpoint import Code, HookPhase, OperationState
from dra_driver.model.checkpoint import Kind as OperationKind
from dra_driver.model.health import HealthStatus
from dra_driver.model.mps import MpsPhase
from dra_driver.model.share import OnExceed
from dra_driver.model.steps import Step
from dra_driver.plan.watchdog_values import StrangerKind


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One metric; its unit is the end of its name, "total" counts things.

    Attributes:
        labels: by name, the values that are known beforehand: a counter stands at zero for all
            their combinations from the start, so that a first failure is an increase. An empty
            tuple: values come with use.
        series_end: of a gauge: its series are dropped by `Recorder.forget`.
    """

    kind: Kind
    name: str
    description: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    series_end: bool = False


_OUTCOMES = ("Ok", *(reason.value for reason in Reason))
_OPERATIONS = ("prepare", "unprepare")
_STEPS = tuple(sorted(step.__name__ for step in get_args(Step)))
_DIRECTIONS = ("run", "undo")
_PHASES = tuple(phase.value for phase in HookPhase)
_SHARE: Mapping[str, tuple[str, ...]] = {"namespace": (), "claim": (), "gpu": ()}
"""A claim's shares of one GPU, by its UUID."""

INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        kind=Kind.COUNTER,
        name="claim_operations_total",
        description="Claims prepared and unprepared, by outcome.",
        labels={"operation": _OPERATIONS, "outcome": _OUTCOMES},
    ),
    Instrument(
        kind=Kind.HISTOGRAM,
        name="claim_operation_seconds",
        description="Time that preparing or unpreparing one claim took.",
        labels={"operation": _OPERATIONS},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="registrations_total",
        description="Answers of the kubelet to the driver's registration.",
        labels={"outcome": ("accepted", "refused")},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="journal_unreadable_total",
        description="Entries of the journal that could not be read.",
        labels={"cause": ("newer", "damaged")},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="overlaps_total",
        description="Prepares that met another claim's hold on a device, and how that ended.",
        labels={"outcome": ("passed", "refused")},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="steps_total",
        description="Steps of plans that were run or undone.",
        labels={"step": _STEPS, "direction": _DIRECTIONS, "outcome": ("ok", "failed")},
    ),
    Instrument(
        kind=Kind.HISTOGRAM,
        name="step_seconds",
        description="Time that one step of a plan took.",
        labels={"step": _STEPS, "direction": _DIRECTIONS},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="recovery_problems_total",
        description="Records that could not be put in order after a start.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="stale_claims_total",
        description="Records that were cleared because their claims are gone.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="slice_writes_total",
        description="Writes of ResourceSlices.",
        labels={"verb": ("create", "replace", "delete")},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="publish_failures_total",
        description="Attempts to publish that failed; they are repeated.",
        labels={"kind": ("conflict", "dropped", "refused", "transient")},
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="published_devices",
        description="Devices in the published pool.",
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="gpus",
        description="GPUs of the node by health.",
        labels={"health": tuple(status.value for status in HealthStatus)},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="gpu_read_failures_total",
        description="Reads of the inventory that failed as a whole.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="gpu_event_failures_total",
        description="Waits for GPU events that failed.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="gpu_xid_total",
        description="Errors that the GPU driver reported, by NVIDIA's number (XID).",
        labels={"xid": ()},
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="health_streams",
        description="Streams of the kubelet that follow the health of devices.",
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="share_memory_used_bytes",
        description="Device memory that the processes of a claim use on a GPU that it shares.",
        labels=_SHARE,
        series_end=True,
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="share_memory_limit_bytes",
        description="Device memory that a claim may use on a GPU that it shares.",
        labels=_SHARE,
        series_end=True,
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="share_clients",
        description="Processes of a claim on a GPU that it shares.",
        labels=_SHARE,
        series_end=True,
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="share_exceeded_total",
        description="Times that a claim rose above its device memory, by what its config asks for.",
        labels={"policy": tuple(policy.value for policy in OnExceed)},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="clients_terminated_total",
        description="Processes of claims above their memory that were to lose their GPU.",
        labels={"outcome": ("ok", "failed")},
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="strangers",
        description="Processes on shared GPUs that should not be there, or not in this way.",
        labels={"kind": tuple(kind.value for kind in StrangerKind)},
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="mpsd_connected",
        description="1 while the supervisor of shares tells its state, 0 while it is away.",
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="mps_gpus",
        description="GPUs that the supervisor of shares knows, by how far their sharing is.",
        labels={"phase": tuple(phase.value for phase in MpsPhase)},
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="mps_clients",
        description="Processes that the MPS server of a GPU serves.",
        labels={"gpu": ()},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="mps_server_restarts_total",
        description="Times that the MPS of a GPU ended under its shares and was started again.",
    ),
    Instrument(
        kind=Kind.HISTOGRAM,
        name="mps_start_seconds",
        description="Time until a GPU's MPS server ran, from when a share was wanted.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="mps_failures_total",
        description="Times that a GPU could not be made to hold its shares; it is tried again.",
    ),
    Instrument(
        kind=Kind.GAUGE,
        name="hook_installed",
        description="1 while the host has the checkpoint hook and CRIU is told of it, else 0.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="hook_calls_total",
        description="Calls of the checkpoint hook, by verdict.",
        labels={"phase": _PHASES, "code": tuple(code.value for code in Code)},
    ),
    Instrument(
        kind=Kind.HISTOGRAM,
        name="hook_call_seconds",
        description="Time that one call of the checkpoint hook took.",
        labels={"phase": _PHASES},
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="hook_operations_total",
        description="Checkpoints and restores that came to an end, by which.",
        labels={
            "kind": tuple(kind.value for kind in OperationKind),
            "outcome": tuple(state.value for state in OperationState if state.final),
        },
    ),
    Instrument(
        kind=Kind.HISTOGRAM,
        name="hook_state_seconds",
        description="Time that checkpoints and restores spent in a state.",
        labels={
            "kind": tuple(kind.value for kind in OperationKind),
            "state": tuple(state.value for state in OperationState if not state.final),
        },
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="hook_verify_failures_total",
        description="Restored containers that were killed because of their GPU state.",
    ),
    Instrument(
        kind=Kind.COUNTER,
        name="hook_leases_expired_total",
        description="Checkpoints and restores of which nobody told what came of them.",
        labels={"kind": tuple(kind.value for kind in OperationKind)},
    ),
)
