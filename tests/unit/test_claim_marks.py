"""Marks of claims in CDI specs, and what a record keeps of checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dra_driver.errors import ClaimRejected
from dra_driver.model.checkpoint import Outcome
from dra_driver.model.plan import PreparePlan
from dra_driver.model.share import CheckpointPolicy
from dra_driver.model.steps import MarkClaim, WriteCdiSpec
from dra_driver.plan.claims import parse_claim
from dra_driver.plan.manifest import build_manifest
from dra_driver.plan.prepare import plan_prepare
from dra_driver.state import codec
from tests.builders import DRIVER, NODE, claim_json, ref
from tests.unit.operating import operation
from tests.unit.planning import (
    OPTIONS,
    TWO_GPUS,
    config,
    edits,
    parameters,
    request,
    whole_result,
)

MARKED = replace(OPTIONS, mark_claims=True, checkpoints=True)
HOOK = "/opt/gpuslice/bin/gpuslice-hook"


def planned(
    *, options: Any = MARKED, operations: Any = None, on: int = 0, **fields: Any
) -> PreparePlan:
    """Plan claim 1 for a whole GPU with these fields in its GpuConfig."""
    body = claim_json(
        results=[whole_result(number=on)],
        requests=[request()],
        config=[config(parameters("GpuConfig", **fields))],
    )
    return plan_prepare(
        parse_claim(body, ref(), driver=DRIVER, node=NODE),
        options=options,
        inventory=TWO_GPUS,
        abilities=(),
        driver_edits=edits(TWO_GPUS),
        operations=operations,
    )


def spec_of(plan: PreparePlan) -> dict[str, Any]:
    step = plan.record.steps[-1]
    assert isinstance(step, WriteCdiSpec)
    spec: dict[str, Any] = json.loads(step.content)
    return spec


def test_claim_is_marked_before_its_spec_says_so() -> None:
    plan = planned()

    assert plan.record.steps[-2] == MarkClaim(claim_uid=ref().uid)
    [mount] = [
        each
        for each in spec_of(plan)["containerEdits"]["mounts"]
        if each["containerPath"] == "/run/gpuslice/claim"
    ]
    assert mount["hostPath"] == f"/run/gpuslice/claims/{ref().uid}"
    assert set(mount["options"]) == {"ro", "nosuid", "nodev", "noexec", "bind"}
    assert "hooks" not in spec_of(plan)["containerEdits"]


def test_spec_calls_the_program_when_it_is_installed() -> None:
    plan = planned(options=replace(MARKED, hook=HOOK))

    hooks = spec_of(plan)["containerEdits"]["hooks"]
    assert [each["hookName"] for each in hooks] == ["createRuntime", "poststop"]
    assert {each["path"] for each in hooks} == {HOOK}
    assert hooks[0]["args"] == [
        "gpuslice-hook",
        "--claim",
        ref().uid,
        "oci",
        "createRuntime",
    ]


def test_spec_has_no_mark_when_claims_are_not_marked() -> None:
    plan = planned(options=replace(OPTIONS, checkpoints=True, hook=HOOK))

    assert "gpuslice/claim" not in json.dumps(spec_of(plan))
    assert not any(isinstance(step, MarkClaim) for step in plan.record.steps)


def test_record_keeps_what_the_claim_allows() -> None:
    assert planned().record.checkpoint is CheckpointPolicy.NONE
    record = planned(checkpoint="Required").record
    assert record.checkpoint is CheckpointPolicy.REQUIRED
    assert codec.decode(codec.encode(record).encode()) == record


def test_required_checkpoints_are_refused_when_the_driver_cannot_take_them() -> None:
    old = replace(TWO_GPUS, driver_version="565.57.01")
    body = claim_json(
        results=[whole_result()],
        requests=[request()],
        config=[config(parameters("GpuConfig", checkpoint="Required"))],
    )
    with pytest.raises(ClaimRejected, match=r"GPU driver 565\.57\.01 cannot checkpoint"):
        plan_prepare(
            parse_claim(body, ref(), driver=DRIVER, node=NODE),
            options=MARKED,
            inventory=old,
            abilities=(),
            driver_edits=edits(old),
        )


def test_claim_restores_what_fits_and_no_other() -> None:
    first = planned(checkpoint="BestEffort").record
    taken = operation(
        claims=(first.claim,),
        outcome=Outcome.SUCCEEDED,
        manifest=build_manifest((first,), TWO_GPUS, node=NODE),
    )

    record = planned(restoreFrom="op-1", operations={"op-1": taken}).record
    assert record.restore_from == "op-1"
    assert codec.decode(codec.encode(record).encode()) == record
    with pytest.raises(ClaimRejected, match="CRIU restores onto the same GPU alone"):
        planned(restoreFrom="op-1", operations={"op-1": taken}, on=1)
    with pytest.raises(ClaimRejected, match="op-1 is not known on this node"):
        planned(restoreFrom="op-1")
    failed = replace(taken, outcome=Outcome.FAILED)
    with pytest.raises(ClaimRejected, match="op-1 is not known to have taken a checkpoint"):
        planned(restoreFrom="op-1", operations={"op-1": failed})


def test_checkpoint_of_another_namespace_is_not_known() -> None:
    first = planned(checkpoint="BestEffort").record
    taken = operation(
        claims=(replace(first.claim, namespace="other"),),
        outcome=Outcome.SUCCEEDED,
        manifest=build_manifest((first,), TWO_GPUS, node=NODE),
    )
    said = []
    for operations in ({"op-1": taken}, {"op-1": replace(taken, outcome=Outcome.FAILED)}, {}):
        with pytest.raises(ClaimRejected) as refused:
            planned(restoreFrom="op-1", operations=operations)
        said.append(str(refused.value))
    assert "op-1 is not known on this node" in said[0]
    assert len(set(said)) == 1
