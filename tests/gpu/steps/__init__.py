"""The steps, in the order of what they are worth: what does not fit into the time is left out."""

from __future__ import annotations

from tests.gpu.steps.checkpoint import CHECKPOINT_STEPS
from tests.gpu.steps.exposure import EXPOSURE_STEPS
from tests.gpu.steps.facts import FACT_STEPS
from tests.gpu.steps.failures import FAILURE_STEPS
from tests.gpu.steps.limits import LIMIT_STEPS
from tests.gpu.steps.newer import NEWER_STEPS
from tests.gpu.steps.values import Step

STEPS: tuple[Step, ...] = (
    *FACT_STEPS,
    *EXPOSURE_STEPS,
    *LIMIT_STEPS,
    *FAILURE_STEPS,
    *CHECKPOINT_STEPS,
    *NEWER_STEPS,
)


def step_named(name: str) -> Step:
    return next(step for step in STEPS if step.name == name)
