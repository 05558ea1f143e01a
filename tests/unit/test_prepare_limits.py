"""What a claim cannot have although it is allocated: more than a GPU, or a GPU that is away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dra_driver.errors import ClaimError, NotReady
from dra_driver.model.health import DeviceHealth, HealthStatus
from tests.builders import claim_json, share_result, uuid
from tests.unit.planning import TWO_GPUS, USABLE_MIB, device, plan, request, share_claim


def refusal(obj: dict[str, Any], **changes: Any) -> ClaimError:
    with pytest.raises(ClaimError) as caught:
        plan(obj, **changes)
    return caught.value


@pytest.mark.parametrize(
    ("compute", "memory"), [(60, "20Gi"), (10, "50Gi")], ids=["compute", "memory"]
)
def test_plan_prepare_rejects_when_requests_are_allocated_more_than_their_gpu_has(
    compute: int, memory: str
) -> None:
    results = [
        share_result(device(0), request=name, share=number, compute=compute, memory=memory)
        for number, name in enumerate(("a", "b"), start=1)
    ]
    amounts = {"compute": str(compute), "memory": memory}
    asked = [request("a", **amounts), request("b", **amounts)]
    error = refusal(claim_json(results=results, requests=asked))
    assert f"is allocated {2 * compute} % compute" in str(error)
    assert f"of GPU {uuid(0)}, which has 100 % and {USABLE_MIB} MiB" in str(error)


@pytest.mark.parametrize("cause", ["lost", "driver-not-loaded"])
def test_plan_prepare_is_not_ready_when_the_gpu_cannot_be_reached(cause: str) -> None:
    sick = DeviceHealth(
        uuid=uuid(0), status=HealthStatus.UNHEALTHY, message="it fell off the bus", cause=cause
    )
    node = replace(TWO_GPUS, health=(sick,))
    with pytest.raises(NotReady, match=r"cannot be reached now \(it fell off the bus\)"):
        plan(share_claim(), node=node)
    assert plan(share_claim(on_gpu=1), node=node).record.devices


def test_plan_prepare_takes_a_gpu_that_reported_an_error_and_answers() -> None:
    sick = DeviceHealth(uuid=uuid(0), status=HealthStatus.UNHEALTHY, cause="xid-79")
    assert plan(share_claim(), node=replace(TWO_GPUS, health=(sick,))).record.devices
