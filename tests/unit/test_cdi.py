"""The CDI spec of a claim: tight, minimal, legal, and equal bytes for equal input."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import NotReady, Reason
from dra_driver.model.cdi import DeviceNode, DriverEdits, Edits, Hook, Mount
from dra_driver.plan.cdi import ClaimSpec, SpecEntry, claim_spec
from dra_driver.plan.naming import gpu_device, monitor_device
from tests.builders import DRIVER, claim_uid, gpu

SCHEMA = json.loads((Path(__file__).parent / "data/cdi-schema.json").read_text())
COMMON = Edits(
    env=("NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib"),
    device_nodes=(DeviceNode(path="/dev/nvidiactl"),),
    mounts=(Mount(host_path="/root/libcuda.so.1", container_path="/usr/lib/libcuda.so.1"),),
    hooks=(Hook(name="createContainer", path="/usr/bin/nvidia-cdi-hook", args=("a", "b")),),
)


def node_of(number: int, **changes: Any) -> Edits:
    return Edits(device_nodes=(DeviceNode(path=f"/dev/nvidia{number}", **changes),))


def edits(*numbers: int, common: Edits = COMMON) -> DriverEdits:
    return DriverEdits(common=common, per_gpu={gpu(n).uuid: node_of(n) for n in numbers})


def share(number: int, *, request: str = "gpu", share_id: str | None = "s1") -> SpecEntry:
    return SpecEntry(
        request=request,
        device=gpu_device(gpu(number).uuid),
        share_id=share_id,
        gpu=gpu(number),
        compute_percent=25 + number,
        memory_mib=6144 + number,
    )


def monitor(number: int, *, request: str) -> SpecEntry:
    device = monitor_device(gpu(number).uuid)
    return SpecEntry(
        request=request, device=device, share_id=None, gpu=gpu(number),
        compute_percent=0, memory_mib=0, monitor=True,
    )  # fmt: skip


def build(
    *entries: SpecEntry, driver_edits: DriverEdits | None = None, uid: str = "c0ffee"
) -> ClaimSpec:
    return claim_spec(
        driver=DRIVER,
        claim_uid=uid,
        entries=entries,
        driver_edits=driver_edits or edits(0, 1, 2, 3),
    )


def parsed(spec: ClaimSpec) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(spec.step.content)
    jsonschema.validate(content, SCHEMA)
    return content


def environment(spec: ClaimSpec, ids: tuple[str, ...]) -> dict[str, list[str]]:
    """Variables that devices of one container set, each with all values in order."""
    by_name = {each["name"]: each["containerEdits"] for each in parsed(spec)["devices"]}
    seen: dict[str, list[str]] = {}
    for device in ids:
        for entry in by_name[device.partition("=")[2]].get("env", []):
            name, _, value = entry.partition("=")
            seen.setdefault(name, []).append(value)
    return seen


def test_claim_spec_holds_only_the_claimed_gpu_when_node_has_several() -> None:
    content = parsed(build(share(1)))
    paths = [
        node["path"]
        for part in (content, *content["devices"])
        for node in part["containerEdits"].get("deviceNodes", [])
    ]
    assert paths == ["/dev/nvidiactl", "/dev/nvidia1"]
    assert content["containerEdits"]["env"] == [
        "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib",
        "NVIDIA_VISIBLE_DEVICES=void",
    ]


def test_claim_spec_says_what_the_share_holds() -> None:
    spec = build(share(1))
    assert spec.cdi_ids == ((f"{DRIVER}/claim=c0ffee-{gpu_device(gpu(1).uuid)}-s1",),)
    assert environment(spec, spec.cdi_ids[0]) == {
        "GPUSLICE_GPU_UUID": [gpu(1).uuid],
        "GPUSLICE_COMPUTE_PERCENT": ["26"],
        "GPUSLICE_MEMORY_MIB": ["6145"],
    }
    assert spec.step.name == f"{DRIVER}-claim_c0ffee"


def test_claim_spec_lists_holdings_once_when_a_request_has_several_gpus() -> None:
    spec = build(share(0), share(2), share(1, request="other/sub"))
    first, second, other = spec.cdi_ids
    assert first[1] == second[1] == f"{DRIVER}/claim=c0ffee-request-gpu"
    assert first[0] != second[0]
    assert environment(spec, first + second[:1]) == {
        "GPUSLICE_GPU_UUID": [f"{gpu(0).uuid},{gpu(2).uuid}"],
        "GPUSLICE_COMPUTE_PERCENT": ["25,27"],
        "GPUSLICE_MEMORY_MIB": ["6144,6146"],
    }
    assert environment(spec, other)["GPUSLICE_GPU_UUID"] == [gpu(1).uuid]


def test_claim_spec_keeps_two_shares_of_one_gpu_apart() -> None:
    spec = build(share(0, share_id="a"), share(0, share_id="b"))
    assert spec.cdi_ids[0][0] != spec.cdi_ids[1][0]


def test_claim_spec_has_one_device_when_two_requests_watch_one_gpu() -> None:
    spec = build(monitor(0, request="r1"), monitor(0, request="r2"), monitor(1, request="r2"))
    names = Counter(each["name"] for each in parsed(spec)["devices"])
    assert set(names.values()) == {1}
    assert environment(spec, spec.cdi_ids[0]) == {"GPUSLICE_GPU_UUID": [gpu(0).uuid]}
    both = [f"{gpu(0).uuid},{gpu(1).uuid}"]
    assert environment(spec, spec.cdi_ids[1])["GPUSLICE_GPU_UUID"] == both


@pytest.mark.parametrize(
    ("uid", "node", "mount_type", "version"),
    [
        ("c0ffee", {}, None, "0.3.0"),
        ("c0ffee", {}, "bind", "0.4.0"),
        ("c0ffee", {"host_path": "/run/driver/dev/nvidia0"}, None, "0.5.0"),
        ("0c0ffee", {}, "bind", "0.5.0"),
    ],
)
def test_claim_spec_names_the_lowest_sufficient_version(
    uid: str, node: dict[str, str], mount_type: str | None, version: str
) -> None:
    mount = Mount(host_path="/a", container_path="/b", type=mount_type)
    driver_edits = DriverEdits(
        common=Edits(mounts=(mount,)), per_gpu={gpu(0).uuid: node_of(0, **node)}
    )
    assert parsed(build(share(0), driver_edits=driver_edits, uid=uid))["cdiVersion"] == version


def test_claim_spec_is_refused_when_the_gpu_has_no_node() -> None:
    with pytest.raises(NotReady, match="has no device node") as caught:
        build(share(1), driver_edits=edits(0))
    assert caught.value.reason is Reason.DEVICE_LOST


def test_claim_spec_adds_what_the_entry_adds() -> None:
    extra = Edits(env=("CUDA_MPS_PIPE_DIRECTORY=/run/x",), mounts=COMMON.mounts)
    entry = SpecEntry(
        request="gpu", device="gpu-0", share_id=None, gpu=gpu(0),
        compute_percent=50, memory_mib=1, extra=extra,
    )  # fmt: skip
    (device,) = parsed(build(entry))["devices"]
    assert "CUDA_MPS_PIPE_DIRECTORY=/run/x" in device["containerEdits"]["env"]
    assert len(device["containerEdits"]["mounts"]) == 1


@given(
    requests=st.lists(
        st.tuples(st.sampled_from(["a", "b", "b/sub", "c"]), st.integers(0, 3)),
        min_size=1,
        max_size=8,
        unique=True,
    ),
    uid=st.integers(1, 2**31).map(claim_uid),
    monitors=st.booleans(),
)
def test_claim_spec_is_legal_and_free_of_conflicts_whatever_the_claim(
    requests: list[tuple[str, int]], uid: str, *, monitors: bool
) -> None:
    entries = tuple(
        monitor(number, request=request)
        if monitors
        else share(number, request=request, share_id=f"s{position}")
        for position, (request, number) in enumerate(requests)
    )
    spec = build(*entries, uid=uid)
    assert spec == build(*entries, uid=uid)
    names = [each["name"] for each in parsed(spec)["devices"]]
    assert len(names) == len(set(names))
    for request in {entry.main_request for entry in entries}:
        ids = [
            device
            for entry, of_entry in zip(entries, spec.cdi_ids, strict=True)
            if entry.main_request == request
            for device in of_entry
        ]
        values = environment(spec, tuple(dict.fromkeys(ids)))
        assert all(len(each) == 1 for each in values.values())
        expected = [e.gpu.uuid for e in entries if e.main_request == request]
        assert values["GPUSLICE_GPU_UUID"] == [",".join(expected)]


def test_claim_spec_is_canonical_json() -> None:
    content = build(share(0)).step.content
    assert content == json.dumps(json.loads(content), sort_keys=True, separators=(",", ":")) + "\n"
    assert all(left < right for left, right in pairwise(json.loads(content)))
