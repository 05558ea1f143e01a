"""Shapes of claims as users write them, in the terms of this driver."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.record import Use
from dra_driver.model.share import Sharing, TimeSlice
from dra_driver.model.steps import SetTimeSlice, WriteCdiSpec
from tests.builders import claim_json, inventory, share_result, uuid
from tests.builders import gpu as gpu_facts
from tests.unit.planning import (
    USABLE_MIB,
    ability,
    config,
    device,
    only_share,
    parameters,
    plan,
    request,
    share_claim,
    shares,
    slot,
    whole_result,
)

SUPPORTED = "write apiVersion config.gpuslice.io/v1alpha1 and kind GpuConfig or SliceConfig"


@pytest.mark.parametrize("name", ["gpu", "container-0-request-0"])
def test_one_gpu_without_count_is_prepared_whole_and_without_setup(name: str) -> None:
    record = plan(claim_json(results=[whole_result(name)], requests=[request(name)])).record
    assert [type(step) for step in record.steps] == [WriteCdiSpec]
    assert [each.requests for each in record.devices] == [(name,)]


def test_two_gpus_of_one_request_are_two_devices_of_one_request() -> None:
    results = [whole_result(number=0), whole_result(number=1)]
    record = plan(claim_json(results=results, requests=[request()])).record
    assert [(each.device, each.requests) for each in record.devices] == [
        (device(0), ("gpu",)),
        (device(1), ("gpu",)),
    ]
    # What the request holds is told once, by a device that both answers name.
    assert len({each.cdi_ids[0] for each in record.devices}) == 2
    assert len({each.cdi_ids[1] for each in record.devices}) == 1


def test_mps_share_of_half_a_gpu_for_two_containers_is_one_device() -> None:
    entry = config(parameters(sharing="MPS"), "gpu")
    made = plan(share_claim(compute="50", memory="10Gi", configs=[entry]))
    assert (only_share(made).compute_percent, only_share(made).memory_mib) == (50, 10240)
    assert len(made.record.devices) == 1


def test_requests_of_one_claim_get_their_own_kind_of_sharing() -> None:
    results = [whole_result("ts-gpu"), share_result(device(1), request="mps-gpu", compute=50)]
    spec = [request("ts-gpu"), request("mps-gpu", compute="50", memory="6Gi")]
    configs = [
        config(parameters("GpuConfig", timeSlice="Long"), "ts-gpu"),
        config(parameters(sharing="MPS"), "mps-gpu"),
    ]
    made = plan(claim_json(results=results, requests=spec, config=configs))
    assert made.record.steps[0] == SetTimeSlice(gpu=uuid(0), interval=TimeSlice.LONG)
    assert only_share(made).gpu == uuid(1)
    assert [use.setting for use in made.record.uses] == ["TimeSlice=Long", "MPS"]


def test_config_without_requests_covers_all_shares() -> None:
    results = [share_result(device(n), request=f"r{n}", share=n, compute=30) for n in (0, 1)]
    spec = [request(f"r{n}", compute="30", memory="6Gi") for n in (0, 1)]
    entry = config(parameters(sharing="MPS", maxCompute=20, maxMemory="1Gi"))
    made = plan(claim_json(results=results, requests=spec, config=[entry]))
    assert [(s.compute_percent, s.memory_mib) for s in shares(made)] == [(20, 1024)] * 2


def test_class_config_holds_until_the_claim_has_its_own() -> None:
    by_class = config(parameters(maxCompute=25, maxMemory="6Gi"), "gpu", source="FromClass")
    of_class = only_share(plan(share_claim(compute="50", memory="24Gi", configs=[by_class])))
    assert (of_class.compute_percent, of_class.memory_mib) == (25, 6144)
    own = config(parameters(maxCompute=40))
    of_claim = only_share(plan(share_claim(compute="50", memory="24Gi", configs=[own, by_class])))
    assert (of_claim.compute_percent, of_claim.memory_mib) == (40, 24576)


def test_class_limits_fail_closed_when_the_claim_takes_a_whole_gpu() -> None:
    by_class = config(parameters(maxCompute=25), "gpu", source="FromClass")
    with pytest.raises(ClaimRejected, match=r"class config 0, kind SliceConfig: does not fit"):
        plan(share_claim(compute=None, memory=None, configs=[by_class]))


def test_four_slots_of_one_gpu_are_four_requests() -> None:
    results = [whole_result(f"r{n}", device=slot(25, n)) for n in range(4)]
    spec = [request(f"r{n}", compute="25", memory="10Gi") for n in range(4)]
    made = plan(claim_json(results=results, requests=spec))
    assert [use.use for use in made.record.uses] == [Use.SLOT] * 4
    assert sum(use.memory_mib for use in made.record.uses) <= USABLE_MIB


def test_first_available_slice_is_answered_by_its_main_request() -> None:
    spec = [
        {
            "name": "gpu",
            "firstAvailable": [
                {"name": "whole", "deviceClassName": "gpu.gpuslice.io"},
                {
                    "name": "half",
                    "deviceClassName": "slice.gpuslice.io",
                    "capacity": {"requests": {"compute": "50", "memory": "20Gi"}},
                },
            ],
        }
    ]
    configs = [
        config(parameters("GpuConfig", timeSlice="Long"), "gpu/whole"),
        config(parameters(qos="BestEffort"), "gpu/half"),
    ]
    half = share_result(device(), request="gpu/half", compute=50, memory="20Gi")
    made = plan(claim_json(results=[half], requests=spec, config=configs))
    assert made.record.devices[0].requests == ("gpu",)
    assert only_share(made).priority == 1
    whole = share_result(device(), request="gpu/whole", compute=1, memory=f"{USABLE_MIB}Mi")
    made = plan(claim_json(results=[whole], requests=spec, config=configs))
    assert made.record.uses[0].setting == "TimeSlice=Long"


@pytest.mark.parametrize("memory", ["4Gi", "18Gi", "50Gi"])
def test_claims_by_memory_alone_hold_it_and_use_free_compute(memory: str) -> None:
    share = only_share(plan(share_claim(compute=None, memory=memory)))
    assert share.memory_mib == int(memory.removesuffix("Gi")) * 1024
    assert share.compute_percent == 100


def test_old_boards_are_shared_in_time_or_refused() -> None:
    board = gpu_facts(0, compute_capability=(6, 1))
    old = ability(tier=None, reason="MPS needs Volta or later")
    whole = claim_json(results=[whole_result()], requests=[request()])
    assert plan(whole, node=inventory(board), abilities=(old,)).record.devices


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (parameters(ofTomorrow=1), "field ofTomorrow: unknown, its value is 1"),
        (
            {
                "apiVersion": "gpu.resource.example/v1alpha1",
                "kind": "GpuClaimParameters",
                "sharing": {"strategy": "MPS", "mpsConfig": {"maxClients": 8}},
            },
            SUPPORTED,
        ),
        ({"parametersRef": {"name": "x"}, "memory": "80Gi"}, SUPPORTED),
        (
            {"apiVersion": "config.gpuslice.io/v1", "kind": "SliceConfig", "migDevices": ["1g"]},
            SUPPORTED,
        ),
        ({"apiVersion": "config.gpuslice.io/v1beta1", "kind": "SliceConfig"}, SUPPORTED),
        ({"driverConfig": {"driver": "vfio-pci"}}, SUPPORTED),
        (
            parameters(sharing={"strategy": "MPS", "mpsConfig": {}}),
            "is not supported: write MPS or TimeSlicing",
        ),
    ],
)
@pytest.mark.parametrize("source", ["FromClass", "FromClaim"])
def test_config_of_an_old_guide_is_refused_with_what_is_supported(
    values: dict[str, Any], text: str, source: str
) -> None:
    with pytest.raises(ClaimRejected) as caught:
        plan(share_claim(configs=[config(values, source=source)]))
    assert caught.value.reason is Reason.INVALID_CONFIG
    place = "class" if source == "FromClass" else "claim"
    assert str(caught.value).startswith(f"claim team-a/claim-1: {place} config 0: ")
    assert text in str(caught.value)


def test_sharing_differs_between_claims_of_different_gpus() -> None:
    sliced = config(parameters(sharing="TimeSlicing"))
    first = plan(share_claim())
    second = plan(share_claim(number=2, on_gpu=1, configs=[sliced]), number=2)
    assert only_share(first).sharing is Sharing.MPS
    assert only_share(second).sharing is Sharing.TIME_SLICING
