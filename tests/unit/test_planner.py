from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest

from dra_driver.errors import AdapterError, ClaimRejected, NotReady, Reason
from dra_driver.model.cdi import DriverEdits
from dra_driver.model.checkpoint import Operation
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.share import GpuShare, ShareAbility
from dra_driver.state.current import Current
from dra_driver.state.planner import CheckpointTerms, Planner
from tests.builders import claim_json, gpu, inventory, ref, share_result, uuid
from tests.unit.planning import (
    CONFIG,
    OPTIONS,
    TWO_GPUS,
    ability,
    config,
    device,
    edits,
    plan,
    request,
    share_claim,
    whole_result,
)

WHOLE = claim_json(results=[whole_result()], requests=[request()])


class Supervisor:
    """Knows abilities, or fails."""

    def __init__(self, *abilities: ShareAbility, fault: str = "") -> None:
        self._abilities = abilities
        self._fault = fault
        self.asked_about: list[tuple[GpuUuid, ...]] = []

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        raise AssertionError("planning changes nothing")

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        self.asked_about.append(tuple(gpu.uuid for gpu in inventory.gpus))
        if self._fault:
            raise AdapterError(self._fault)
        return self._abilities


class Files:
    """Gives the edits of whatever inventory it is asked about, or fails."""

    def __init__(self, fault: str = "") -> None:
        self._fault = fault

    def edits(self, inventory: Inventory) -> DriverEdits:
        if self._fault:
            raise AdapterError(self._fault)
        return edits(inventory)


def planner(
    *,
    node: Inventory | None = TWO_GPUS,
    supervisor: Supervisor | None = None,
    files: Files | None = None,
) -> Planner:
    return Planner(
        options=OPTIONS,
        inventory=Current[Inventory | None](node),
        supervisor=supervisor or Supervisor(ability(0), ability(1)),
        driver_files=files or Files(),
    )


def test_plan_is_the_one_of_the_claim() -> None:
    assert planner().plan(share_claim(), ref()) == plan(share_claim())


def test_plan_follows_the_inventory() -> None:
    current = Current[Inventory | None](inventory(gpu(0)))
    made = Planner(
        options=OPTIONS,
        inventory=current,
        supervisor=Supervisor(ability(1)),
        driver_files=Files(),
    )
    obj = share_claim(on_gpu=1)
    with pytest.raises(ClaimRejected):
        made.plan(obj, ref())
    current.set(TWO_GPUS)
    assert made.plan(obj, ref()).record.devices


def test_plan_is_not_ready_when_the_gpu_driver_is_not_loaded() -> None:
    with pytest.raises(
        NotReady, match=r"claim team-a/claim-1: the GPU driver of node node-a is not"
    ):
        planner(node=None).plan(share_claim(), ref())


def test_plan_tells_that_the_claim_was_replaced_before_it_looks_at_the_node() -> None:
    with pytest.raises(ClaimRejected, match="was replaced"):
        planner(node=None).plan(share_claim(number=2), ref())


def test_plan_of_a_share_is_not_ready_when_the_supervisor_is_away() -> None:
    away = Supervisor(fault="mpsd does not answer: see its pod")
    with pytest.raises(NotReady, match=r"what sharing can promise is not known: mpsd does not"):
        planner(supervisor=away).plan(share_claim(), ref())
    assert planner(supervisor=away).plan(WHOLE, ref()).record.devices


def test_plan_asks_what_sharing_promises_only_of_gpus_that_are_shared() -> None:
    supervisor = Supervisor(ability(0), ability(1))
    made = planner(supervisor=supervisor)
    two = [share_result(device(1), request=f"r{n}", share=n) for n in (0, 1)]
    requests = [request(f"r{n}", compute="25", memory="6Gi") for n in (0, 1)]
    made.plan(claim_json(results=two, requests=requests), ref())
    assert supervisor.asked_about == [(uuid(1),)]
    made.plan(WHOLE, ref())
    assert supervisor.asked_about == [(uuid(1),)]


def test_plan_is_not_ready_when_driver_files_are_not_known() -> None:
    with pytest.raises(NotReady) as caught:
        planner(files=Files(fault="cannot read /etc/cdi")).plan(WHOLE, ref())
    assert caught.value.reason is Reason.STEP_FAILED
    assert "the GPU driver's files are not known: cannot read /etc/cdi" in str(caught.value)


def test_plan_needs_no_gpu_driver_files_twice_for_equal_bytes() -> None:
    two = claim_json(
        results=[share_result(device(n), request=f"r{n}", share=n) for n in (0, 1)],
        requests=[request(f"r{n}", compute="25", memory="6Gi") for n in (0, 1)],
    )
    made = planner()
    assert made.plan(two, ref()) == made.plan(two, ref())


class Hook:
    """The checkpoint hook as claims meet it; `fault` keeps its operations from being read."""

    def __init__(self, *, fault: str = "") -> None:
        self.path: str | None = None
        self.enabled = False
        self.fault = fault
        self.asked = 0

    def planner(self) -> Planner:
        return Planner(
            options=replace(OPTIONS, mark_claims=True),
            inventory=Current[Inventory | None](TWO_GPUS),
            supervisor=Supervisor(ability(0), ability(1)),
            driver_files=Files(),
            checkpoints=CheckpointTerms(
                enabled=lambda: self.enabled, hook=lambda: self.path, operations=self.operations
            ),
        )

    def operations(self) -> Mapping[str, Operation]:
        self.asked += 1
        if self.fault:
            raise AdapterError(self.fault)
        return {}


def _gpu_claim(**fields: str) -> dict[str, object]:
    values = {"apiVersion": CONFIG, "kind": "GpuConfig", **fields}
    return claim_json(results=[whole_result()], requests=[request()], config=[config(values)])


def test_specs_name_the_hook_only_while_it_can_be_relied_on() -> None:
    hook = Hook()
    made = hook.planner()
    for path in (None, "/x/gpuslice-hook", None):
        hook.path = path
        content = made.plan(WHOLE, ref()).record.steps[-1]
        assert ("/x/gpuslice-hook" in str(content)) is (path is not None)


def test_checkpoints_can_be_required_only_while_they_are_taken() -> None:
    hook = Hook()
    made = hook.planner()
    with pytest.raises(ClaimRejected, match="takes no checkpoints"):
        made.plan(_gpu_claim(checkpoint="Required"), ref())
    hook.enabled = True
    assert made.plan(_gpu_claim(checkpoint="Required"), ref()).record.devices


def test_operations_are_asked_only_when_a_config_names_one() -> None:
    hook = Hook(fault="the disk is away")
    hook.enabled = True
    made = hook.planner()
    assert made.plan(_gpu_claim(checkpoint="BestEffort"), ref()).record.devices
    assert hook.asked == 0
    with pytest.raises(NotReady, match="checkpoints are not known: the disk is away"):
        made.plan(_gpu_claim(restoreFrom="op-1"), ref())
    assert hook.asked == 1
