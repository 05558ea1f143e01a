from __future__ import annotations

import pytest

from dra_driver.errors import ClaimRejected
from dra_driver.model.record import GpuUse, Use
from dra_driver.model.share import GpuShare, Sharing
from tests.builders import claim_json, claim_uid, share_result, uuid
from tests.unit.planning import (
    USABLE_MIB,
    config,
    device,
    only_share,
    parameters,
    plan,
    request,
    slot,
)


def test_share_is_known_by_its_amounts_or_by_its_id_when_one_of_them_is_missing() -> None:
    nameless = share_result(device(), compute=1)
    del nameless["shareID"]
    assert only_share(plan(claim_json(results=[nameless]))).compute_percent == 1
    amountless = share_result(device()) | {"consumedCapacity": None}
    with pytest.raises(
        ClaimRejected, match=r"consumedCapacity\[compute\] of its allocation is mis"
    ):
        plan(claim_json(results=[amountless]))


def test_slot_is_a_share_of_the_size_in_its_name() -> None:
    result = {"request": "gpu", "driver": "gpuslice.io", "pool": "node-a", "device": slot(25, 3)}
    obj = claim_json(
        results=[result], requests=[request()], config=[config(parameters(maxCompute=20))]
    )
    made = plan(obj)
    assert only_share(made) == GpuShare(
        id=f"{claim_uid(1)}-0",
        gpu=uuid(0),
        sharing=Sharing.MPS,
        compute_percent=20,
        memory_mib=USABLE_MIB // 4,
    )
    assert made.record.uses == (
        GpuUse(
            gpu=uuid(0),
            use=Use.SLOT,
            device=slot(25, 3),
            compute_percent=25,
            memory_mib=USABLE_MIB // 4,
            setting="MPS",
        ),
    )
    assert "a slot of GPU" in made.notes[0]
    assert made.notes[0].endswith("qos Guaranteed, by claim config 0")
