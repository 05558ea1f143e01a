"""What containers of shares under MPS get to see, from the claim to the CDI spec."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import ClaimError
from dra_driver.model.cdi import Edits, Mount
from dra_driver.model.device import Tier
from dra_driver.model.plan import PreparePlan
from dra_driver.model.share import Expose, GpuShare, Sharing
from dra_driver.model.steps import WriteCdiSpec
from dra_driver.plan.mps_edits import mps_edits
from tests.builders import claim_json, claim_uid, gpu, inventory, share_result, uuid
from tests.unit.planning import (
    OPTIONS,
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

WITH_FOLDERS = replace(OPTIONS, run_dir="/run/gs", mps_folders=True)
MPS_ENV = [
    "CUDA_MPS_PIPE_DIRECTORY=/run/gpuslice/mps",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25.0",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=6144M",
]
MOUNT = {
    "containerPath": "/run/gpuslice/mps",
    "hostPath": f"/run/gs/shares/{claim_uid(1)}-0",
    "options": ["rbind", "ro", "nosuid", "nodev", "noexec"],
}


def spec(made: PreparePlan) -> dict[str, Any]:
    (step,) = (each for each in made.record.steps if isinstance(each, WriteCdiSpec))
    content: dict[str, Any] = json.loads(step.content)
    return content


def only_edits(made: PreparePlan) -> dict[str, Any]:
    (entry,) = spec(made)["devices"]
    edits: dict[str, Any] = entry["containerEdits"]
    return edits


def mps_variables(edits: dict[str, Any]) -> list[str]:
    return [entry for entry in edits["env"] if entry.startswith("CUDA_MPS_")]


def test_mps_edits_lead_to_the_folder_of_the_share_with_its_limits() -> None:
    share = GpuShare(id="s", gpu=uuid(0), sharing=Sharing.MPS, compute_percent=25, memory_mib=6144)
    assert mps_edits(share, run_dir="/run/gs") == Edits(
        env=tuple(MPS_ENV),
        mounts=(
            Mount(
                host_path="/run/gs/shares/s",
                container_path="/run/gpuslice/mps",
                options=("rbind", "ro", "nosuid", "nodev", "noexec"),
            ),
        ),
    )


def test_plan_gives_a_share_its_socket_and_its_limits() -> None:
    edits = only_edits(plan(share_claim(), options=WITH_FOLDERS))
    assert mps_variables(edits) == MPS_ENV
    assert edits["mounts"] == [MOUNT]


def test_plan_mounts_the_pipe_folder_when_the_whole_folder_is_exposed() -> None:
    cooperative = (ability(tier=Tier.COOPERATIVE, expose=Expose.FOLDER),)
    made = plan(share_claim(), options=WITH_FOLDERS, abilities=cooperative)
    assert only_share(made).expose is Expose.FOLDER
    folder = f"/run/gs/mps/{uuid(0)}/pipe"
    assert only_edits(made)["mounts"] == [MOUNT | {"hostPath": folder}]
    assert mps_variables(only_edits(made)) == MPS_ENV


def test_plan_sets_the_priority_only_when_it_is_not_the_normal_one() -> None:
    best_effort = share_claim(configs=[config(parameters(qos="BestEffort"))])
    assert mps_variables(only_edits(plan(best_effort, options=WITH_FOLDERS))) == [
        MPS_ENV[0],
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100.0",
        MPS_ENV[2],
        "CUDA_MPS_CLIENT_PRIORITY=1",
    ]


@pytest.mark.parametrize(
    ("obj", "changes"),
    [
        (share_claim(), {}),
        (share_claim(compute=None, memory=None), {"options": WITH_FOLDERS}),
        (
            share_claim(configs=[config(parameters(sharing="TimeSlicing"))]),
            {"options": WITH_FOLDERS, "abilities": (ability(expose=Expose.FOLDER),)},
        ),
    ],
    ids=["no folders", "whole", "time-slicing"],
)
def test_plan_says_nothing_of_mps_when_there_is_none(
    obj: dict[str, Any], changes: dict[str, Any]
) -> None:
    made = plan(obj, **changes)
    assert "CUDA_MPS" not in json.dumps(spec(made))
    assert "mounts" not in only_edits(made)
    assert all(share.expose is Expose.CONTROL for share in shares(made))


def test_plan_gives_a_slot_its_part_of_the_memory_as_its_limit() -> None:
    obj = claim_json(results=[whole_result(device=slot(25, 2))], requests=[request()])
    edits = only_edits(plan(obj, options=WITH_FOLDERS))
    assert f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={USABLE_MIB // 4}M" in edits["env"]


def test_plan_is_refused_when_a_part_of_a_tiny_gpu_would_have_no_limit() -> None:
    tiny = inventory(gpu(0, memory_total_bytes=(638 + 64 + 128 + 3) << 20))
    obj = claim_json(results=[whole_result(device=slot(25))], requests=[request()])
    with pytest.raises(ClaimError, match="has 3 MiB to give, too little for a part of it: ask"):
        plan(obj, node=tiny)
    full = inventory(gpu(0, memory_total_bytes=700 << 20))
    with pytest.raises(ClaimError, match="has 0 MiB to give"):
        plan(share_claim(memory="1Mi"), node=full)


@st.composite
def mixed_claims(draw: st.DrawFn) -> dict[str, Any]:
    results, spec = [], []
    for place in range(draw(st.integers(1, 3))):
        name, number = f"r{place}", draw(st.integers(0, 1))
        amounts = {
            "compute": str(draw(st.integers(-1, 101))),
            "memory": str(draw(st.integers(0, USABLE_MIB << 20))),
        }
        spec.append(request(name, **amounts))
        shared = share_result(device(number), request=name, share=place)
        kinds = [
            shared | {"consumedCapacity": amounts},
            whole_result(name, device=slot(draw(st.sampled_from([1, 10, 25])), 0, uuid(number))),
            whole_result(name, device=f"{device(number)}-monitor", adminAccess=True),
        ]
        results.append(draw(st.sampled_from(kinds)))
    qos = draw(st.sampled_from(["Guaranteed", "Burstable", "BestEffort"]))
    return claim_json(results=results, requests=spec, config=[config(parameters(qos=qos))])


@given(mixed_claims(), st.sampled_from(Expose), st.integers(830, 82_000))
def test_no_container_gets_a_limit_that_is_none_or_one_variable_twice(
    obj: dict[str, Any], expose: Expose, total_mib: int
) -> None:
    node = inventory(*(gpu(number, memory_total_bytes=total_mib << 20) for number in (0, 1)))
    abilities = (ability(0, expose=expose), ability(1, expose=expose))
    try:
        made = plan(obj, options=WITH_FOLDERS, node=node, abilities=abilities)
    except ClaimError:
        return
    for share in shares(made):
        assert 1 <= share.compute_percent <= 100
        assert 1 <= share.memory_mib <= made.usable_mib[share.gpu]
    content = spec(made)
    by_name = {each["name"]: each["containerEdits"] for each in content["devices"]}
    # A container names one request here, so it gets all devices of that request.
    for name in {each.requests[0] for each in made.record.devices}:
        ids = dict.fromkeys(
            cdi_id.partition("=")[2]
            for each in made.record.devices
            if each.requests == (name,)
            for cdi_id in each.cdi_ids
        )
        edits = [content["containerEdits"], *(by_name[each] for each in ids)]
        variables = [entry.partition("=") for each in edits for entry in each.get("env", ())]
        places = [mount["containerPath"] for each in edits for mount in each.get("mounts", ())]
        assert len({key for key, _, _ in variables}) == len(variables)
        assert len(set(places)) == len(places)
        values = {key: value for key, _, value in variables}
        limit = values.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1M")
        assert re.fullmatch(r"0=[1-9][0-9]*M", limit)
