from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dra_driver.errors import ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.cdi import DriverEdits
from dra_driver.model.record import RecordState, Use
from dra_driver.model.share import TimeSlice
from dra_driver.model.steps import EnsureShare, SetTimeSlice, WriteCdiSpec
from dra_driver.plan.naming import pad_device
from dra_driver.plan.prepare import plan_prepare, plan_unprepare
from tests.builders import (
    BOOT,
    DRIVER,
    NODE,
    claim_json,
    claim_uid,
    gpu,
    inventory,
    ref,
    share_result,
    uuid,
)
from tests.unit.planning import (
    OPTIONS,
    TWO_GPUS,
    USABLE_MIB,
    config,
    device,
    parameters,
    parsed,
    plan,
    request,
    share_claim,
    shares,
    slot,
    whole_result,
)

LONG = config(parameters("GpuConfig", timeSlice="Long"))


def whole_claim(*configs: dict[str, Any], number: int = 1, **changes: Any) -> dict[str, Any]:
    return claim_json(
        number, results=[whole_result(**changes)], requests=[request()], config=list(configs)
    )


def two_shares(*names: str, gpus: tuple[int, int] = (0, 1), **changes: Any) -> dict[str, Any]:
    results = [
        share_result(device(number), request=name, share=place)
        for place, (name, number) in enumerate(zip(names, gpus, strict=True))
    ]
    spec = [request(name.partition("/")[0], compute="25", memory="6Gi") for name in {*names}]
    return claim_json(results=results, requests=spec, **changes)


def refusal(obj: dict[str, Any], **changes: Any) -> ClaimError:
    with pytest.raises(ClaimError) as caught:
        plan(obj, **changes)
    return caught.value


def test_plan_prepare_answers_in_allocation_order_with_the_spec_last() -> None:
    made = plan(two_shares("b", "a"))
    record = made.record
    assert (record.claim, record.state, record.boot_id) == (ref(), RecordState.RESERVED, BOOT)
    assert [type(step) for step in record.steps] == [EnsureShare, EnsureShare, WriteCdiSpec]
    assert [each.requests for each in record.devices] == [("b",), ("a",)]
    assert [each.device for each in record.devices] == [device(0), device(1)]
    assert [use.device for use in record.uses] == [device(0), device(1)]
    assert [each.share_id for each in record.devices] == [use.share_id for use in record.uses]
    assert {each.pool for each in record.devices} == {NODE}
    assert all(
        id_.startswith(f"{DRIVER}/claim=") for each in record.devices for id_ in each.cdi_ids
    )
    assert [note.partition(":")[0] for note in made.notes] == ["request b", "request a"]
    assert made.usable_mib == {uuid(0): USABLE_MIB, uuid(1): USABLE_MIB}


def test_plan_prepare_sets_nothing_up_when_a_whole_gpu_has_no_config() -> None:
    record = plan(whole_claim(), abilities=()).record
    assert [type(step) for step in record.steps] == [WriteCdiSpec]
    (use,) = record.uses
    assert (use.use, use.compute_percent, use.memory_mib, use.setting) == (
        Use.EXCLUSIVE,
        100,
        USABLE_MIB,
        "",
    )
    assert record.devices[0].share_id is None


@pytest.mark.parametrize("interval", ["Default", "Long"])
def test_plan_prepare_sets_the_time_slice_when_a_config_says_so(interval: str) -> None:
    record = plan(whole_claim(config(parameters("GpuConfig", timeSlice=interval)))).record
    assert record.steps[0] == SetTimeSlice(gpu=uuid(0), interval=TimeSlice(interval))
    assert record.uses[0].setting == f"TimeSlice={interval}"


def test_plan_prepare_takes_a_whole_gpu_when_numbers_were_only_a_filter() -> None:
    obj = claim_json(results=[whole_result()], requests=[request(memory="10Gi")])
    assert plan(obj).record.uses[0].use is Use.EXCLUSIVE


def test_plan_prepare_does_nothing_when_no_result_is_of_this_driver() -> None:
    record = plan(claim_json(results=[], config=[config({})])).record
    assert (record.steps, record.uses, record.devices) == ((), (), ())


@pytest.mark.parametrize("name", [device(), f"{device()}-monitor", slot(25)])
def test_plan_prepare_holds_nothing_when_access_is_for_admins(name: str) -> None:
    record = plan(whole_claim(device=name, adminAccess=True), abilities=()).record
    assert [type(step) for step in record.steps] == [WriteCdiSpec]
    (use,) = record.uses
    assert (use.use, use.compute_percent, use.memory_mib, use.setting) == (Use.MONITOR, 0, 0, "")


def test_plan_prepare_reconfigures_nothing_when_access_is_for_admins() -> None:
    record = plan(whole_claim(LONG, adminAccess=True)).record
    assert [type(step) for step in record.steps] == [WriteCdiSpec]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            f"{device()}-monitor",
            (
                f"device {device()}-monitor is a monitor, which needs admin access: set adminAccess: "
                "true in the request, in a namespace labelled "
                'resource.kubernetes.io/admin-access: "true"'
            ),
        ),
        (pad_device(3), "device pad-03 is a place holder that nobody can use: use one of the"),
        (device(7), f"device {device(7)} does not exist on this node"),
    ],
)
def test_plan_prepare_rejects_when_the_device_cannot_be_used(name: str, text: str) -> None:
    error = refusal(whole_claim(device=name))
    assert isinstance(error, ClaimRejected)
    assert str(error).startswith("claim team-a/claim-1, request gpu: device ")
    assert text in str(error)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (
            {"restoreFrom": "op-7"},
            "field restoreFrom: op-7 is not possible: this node takes no checkpoints",
        ),
        (
            {"restoreFrom": "None"},
            "field restoreFrom: None is not possible: this node takes no checkpoints",
        ),
        (
            {"checkpoint": "Required"},
            "field checkpoint: Required is not possible: this node takes no checkpoints",
        ),
    ],
)
def test_plan_prepare_rejects_when_a_promise_about_checkpoints_cannot_be_kept(
    fields: dict[str, Any], text: str
) -> None:
    error = refusal(whole_claim(config(parameters("GpuConfig", **fields))))
    assert error.reason is Reason.NOT_SUPPORTED
    assert f"claim team-a/claim-1: claim config 0: {text}" in str(error)


@pytest.mark.parametrize("gpus", [(0, 0), (0, 1)])
@pytest.mark.parametrize("names", [("gpu", "gpu"), ("gpu/a", "gpu/a")])
def test_plan_prepare_rejects_when_one_request_gives_two_mps_shares(
    names: tuple[str, str], gpus: tuple[int, int]
) -> None:
    error = refusal(two_shares(*names, gpus=gpus))
    assert isinstance(error, ClaimRejected)
    assert str(error) == (
        "claim team-a/claim-1, request gpu: its containers would get two devices at once, "
        f"{device(gpus[0])} and {device(gpus[1])}, but a container can use one MPS share and no GPU "
        "beside it: write one request with count 1 for each container (with constraints: [{distinctAttribute: "
        "gpuslice.io/uuid}] where they have to be on different GPUs), or ask for whole GPUs"
    )


def test_plan_prepare_rejects_when_one_request_gives_two_mps_slots() -> None:
    results = [whole_result(device=slot(25, number)) for number in (0, 1)]
    error = refusal(claim_json(results=results, requests=[request()]))
    assert "a container can use one MPS share" in str(error)


def test_plan_prepare_rejects_when_one_request_gives_an_mps_slot_and_a_whole_gpu() -> None:
    results = [whole_result(device=slot(25)), whole_result(number=1)]
    for order in (results, results[::-1]):
        error = refusal(claim_json(results=order, requests=[request()]))
        assert "one MPS share and no GPU beside it" in str(error)


def test_plan_prepare_takes_a_view_beside_a_share_in_one_request() -> None:
    monitor = whole_result(device=f"{device()}-monitor", adminAccess=True)
    results = [share_result(device()), monitor]
    assert len(plan(claim_json(results=results)).record.devices) == 2


def test_plan_prepare_takes_a_whole_gpu_that_does_not_tell_its_memory() -> None:
    node = inventory(gpu(0, memory_total_bytes=None))
    made = plan(whole_claim(), node=node)
    assert made.record.uses[0].memory_mib == 0
    assert made.usable_mib == {}


def test_plan_prepare_tells_containers_what_they_may_use() -> None:
    def env(obj: dict[str, Any]) -> str:
        spec = plan(obj).record.steps[-1]
        assert isinstance(spec, WriteCdiSpec)
        return spec.content

    assert '"GPUSLICE_COMPUTE_PERCENT=25","GPUSLICE_MEMORY_MIB=6144"' in env(share_claim())
    assert '"GPUSLICE_COMPUTE_PERCENT=100"' in env(share_claim(compute=None))
    assert "GPUSLICE_COMPUTE_PERCENT" not in env(whole_claim(adminAccess=True))


def test_plan_prepare_takes_time_sliced_shares_of_several_gpus_in_one_request() -> None:
    sliced = config(parameters(sharing="TimeSlicing"))
    assert len(shares(plan(two_shares("gpu", "gpu", config=[sliced])))) == 2
    error = refusal(two_shares("gpu", "gpu", gpus=(0, 0), config=[sliced]))
    assert f"both of GPU {uuid(0)}: write constraints: [{{distinctAttribute: " in str(error)


def test_plan_prepare_gives_each_request_its_share_when_they_are_of_one_gpu() -> None:
    made = plan(two_shares("a", "b", gpus=(0, 0)))
    assert [share.id for share in shares(made)] == [f"{claim_uid(1)}-0", f"{claim_uid(1)}-1"]
    ids = [each.cdi_ids[0] for each in made.record.devices]
    assert len(set(ids)) == 2


def test_plan_prepare_rejects_when_requests_share_one_gpu_in_different_ways() -> None:
    sliced = config(parameters(sharing="TimeSlicing"), "b")
    error = refusal(two_shares("a", "b", gpus=(0, 0), config=[sliced]))
    assert isinstance(error, ClaimRejected)
    assert str(error) == (
        f"claim team-a/claim-1: requests a and b cannot both have GPU {uuid(0)}: all claims on one "
        "GPU must agree, and these are MPS and TimeSlicing; give them the same config, or keep "
        "them apart by constraints: [{distinctAttribute: gpuslice.io/uuid}]"
    )


def test_plan_prepare_is_not_ready_when_the_gpu_has_no_device_node() -> None:
    with pytest.raises(NotReady):
        plan_prepare(
            parsed(whole_claim()),
            options=OPTIONS,
            inventory=TWO_GPUS,
            abilities=(),
            driver_edits=DriverEdits(),
        )


def test_plan_unprepare_undoes_backwards_with_the_spec_first() -> None:
    record = plan(two_shares("a", "b")).record
    first, second, spec = record.steps
    assert plan_unprepare(record, {record.claim.uid: record}) == (spec, second, first)
    shuffled = replace(record, steps=(spec, first, second))
    assert plan_unprepare(shuffled, {}) == (spec, second, first)


def test_plan_unprepare_leaves_a_time_slice_when_another_record_needs_it() -> None:
    mine, other = plan(whole_claim(LONG)).record, plan(whole_claim(LONG, number=2), number=2).record
    elsewhere = plan(
        claim_json(3, results=[whole_result(number=1)], requests=[request()], config=[LONG]),
        number=3,
    ).record
    interval, spec = mine.steps
    assert plan_unprepare(mine, {other.claim.uid: other}) == (spec,)
    assert plan_unprepare(mine, {elsewhere.claim.uid: elsewhere}) == (spec, interval)
