"""All metrics of this driver, declared once. Names get the prefix `gpuslice_`.

Labels have few values; there is none for a claim, a pod or a namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import get_args

from dra_driver.errors import Reason
from dra_driver.model.health import HealthStatus
from dra_driver.model.steps import Step


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
    """

    kind: Kind
    name: str
    description: str
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


_OUTCOMES = ("Ok", *(reason.value for reason in Reason))
_OPERATIONS = ("prepare", "unprepare")
_STEPS = tuple(sorted(step.__name__ for step in get_args(Step)))
_DIRECTIONS = ("run", "undo")

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
)
