"""Plans of a few claims, whole, as files; the content of a CDI spec has golden files of its own.

To accept a change: GOLDEN_UPDATE=1 pytest tests/unit/test_prepare_golden.py, then read the diff.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.plan import PreparePlan
from dra_driver.model.steps import WriteCdiSpec
from tests.builders import claim_json, share_result
from tests.unit.planning import (
    config,
    device,
    parameters,
    plan,
    request,
    share_claim,
    slot,
    whole_result,
)

GOLDEN = Path(__file__).parent / "golden"

CLAIMS: dict[str, dict[str, Any]] = {
    "share": share_claim(),
    "share-by-memory-alone": share_claim(compute=None, memory="1536Mi"),
    "mixed": claim_json(
        results=[
            share_result(device(1), request="part/half", compute=50, memory="20Gi"),
            whole_result("all"),
            whole_result("look", device=f"{device(1)}-monitor", adminAccess=True),
        ],
        requests=[
            {
                "name": "part",
                "firstAvailable": [
                    {
                        "name": "half",
                        "deviceClassName": "slice.gpuslice.io",
                        "capacity": {"requests": {"compute": "50"}},
                    }
                ],
            },
            request("all"),
            request("look"),
        ],
        config=[
            config(parameters(qos="BestEffort", maxMemory="8G", onExceed="Terminate"), "part"),
            config(parameters("GpuConfig", timeSlice="Short")),
        ],
    ),
    "slot": claim_json(results=[whole_result(device=slot(25, 2))], requests=[request()]),
}


def as_json(made: PreparePlan) -> str:
    value = dataclasses.asdict(made)
    steps = [
        {"step": type(step).__name__, **dataclasses.asdict(step)} for step in made.record.steps
    ]
    for step in steps:
        if step["step"] == WriteCdiSpec.__name__:
            del step["content"]
    value["record"]["steps"] = steps
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_plan_is_the_golden_one(name: str) -> None:
    path = GOLDEN / f"plan-{name}.json"
    text = as_json(plan(CLAIMS[name]))
    if os.environ.get("GOLDEN_UPDATE"):
        path.write_text(text)
    assert text == path.read_text()
