"""All metrics of this driver, declared once. Names get the prefix `gpuslice_`.

Labels have few values; there is none for a claim, a pod or a namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dra_driver.errors import Reason


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
        kind=Kind.GAUGE,
        name="health_streams",
        description="Streams of the kubelet that follow the health of devices.",
    ),
)
