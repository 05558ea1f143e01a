from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import ClaimError
from dra_driver.model.plan import PreparePlan
from dra_driver.model.record import Use
from dra_driver.model.steps import WriteCdiSpec
from dra_driver.plan.prepare import plan_unprepare
from tests.builders import claim_json, gpu, inventory, share_result, uuid
from tests.unit.planning import (
    USABLE_MIB,
    ability,
    config,
    device,
    parameters,
    plan,
    request,
    share_claim,
    shares,
    slot,
    whole_result,
)

LONG = config(parameters("GpuConfig", timeSlice="Long"))
_AMOUNT = st.none() | st.integers(1, 100)


@st.composite
def claims(draw: st.DrawFn) -> dict[str, Any]:
    """Claims of up to three requests on two GPUs: shares, slots, whole GPUs and monitors."""
    results, spec = [], []
    for place in range(draw(st.integers(1, 3))):
        name, number = f"r{place}", draw(st.integers(0, 1))
        compute, memory = draw(_AMOUNT), draw(_AMOUNT)
        amounts = {"compute": compute, "memory": memory and f"{memory}Mi"}
        asked = {key: str(value) for key, value in amounts.items() if value is not None}
        spec.append(request(name, **asked))
        shared = share_result(device(number), request=name, share=place, compute=compute or 1)
        kinds = [
            shared | {"consumedCapacity": {"compute": "1", "memory": f"{USABLE_MIB}Mi"} | asked},
            whole_result(name, device=slot(25, place, uuid(number))),
            whole_result(name, number=number),
            whole_result(name, device=f"{device(number)}-monitor", adminAccess=True),
        ]
        results.append(draw(st.sampled_from(kinds)))
    configs = draw(st.lists(st.sampled_from([config(parameters(sharing="MPS")), LONG]), max_size=2))
    return claim_json(results=results, requests=spec, config=configs)


def attempt(obj: dict[str, Any], abilities: Any = None) -> PreparePlan | str:
    try:
        return plan(obj, abilities=abilities)
    except ClaimError as e:
        return str(e)


@given(claims())
def test_plan_prepare_is_equal_when_repeated_and_holds_one_use_per_device(
    obj: dict[str, Any],
) -> None:
    made = attempt(obj)
    assert made == attempt(obj, abilities=(ability(1), ability(0)))
    if isinstance(made, str):
        assert made.startswith("claim team-a/claim-1")
        return
    record = made.record
    assert len(record.uses) == len(record.devices) == len(made.notes)
    assert [use.device for use in record.uses] == [each.device for each in record.devices]
    assert isinstance(record.steps[-1], WriteCdiSpec)
    undo = plan_unprepare(record, {})
    assert sorted(map(repr, undo)) == sorted(map(repr, record.steps))
    assert isinstance(undo[0], WriteCdiSpec)
    for share in shares(made):
        use = next(
            use for use in record.uses if use.gpu == share.gpu and use.use is not Use.MONITOR
        )
        assert 1 <= share.memory_mib <= made.usable_mib[use.gpu]
        assert 1 <= share.compute_percent <= 100


@given(st.permutations([0, 1, 2]))
def test_plan_prepare_does_not_depend_on_the_order_of_gpus_in_the_inventory(
    order: list[int],
) -> None:
    obj = share_claim(on_gpu=2)
    node = inventory(*(gpu(number) for number in order))
    abilities = tuple(ability(number) for number in order)
    assert plan(obj, node=node, abilities=abilities) == plan(
        obj, node=inventory(gpu(0), gpu(1), gpu(2)), abilities=(ability(2),)
    )
