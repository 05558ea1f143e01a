from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dra_driver.plan.naming import gpu_device
from tests import builders
from tests.command_line import Run


def _claim(folder: Path, *results: dict[str, Any], **changes: Any) -> str:
    path = folder / "claim.json"
    claim = builders.claim_json(results=list(results), **changes)
    path.write_text(json.dumps(claim), encoding="utf-8")
    return str(path)


def _share(number: int = 0, **changes: Any) -> dict[str, Any]:
    return builders.share_result(gpu_device(builders.uuid(number)), **changes)


def test_explain_shows_devices_steps_and_the_spec(
    run: Run, simulation: str, tmp_path: Path
) -> None:
    claim = _claim(tmp_path, _share(compute=25, memory="6Gi"))
    ended = run("explain", "--claim", claim, "--simulate", simulation)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0] == "Claim team-a/claim-1 on node node-a"
    assert lines[2].split() == [
        "gpu",
        gpu_device(builders.uuid(0)),
        builders.uuid(0),
        "25",
        "6144",
        "MPS",
        "Guaranteed",
    ]
    assert any(line.startswith("  - enforce share ") for line in lines)
    spec = f"gpuslice.io-claim_{builders.claim_uid(1)}.json"
    assert f"  - write the CDI spec {spec}" in lines
    written = json.loads("\n".join(lines[lines.index(f"CDI spec {spec}:") + 1 :]))
    assert written["kind"] == "gpuslice.io/claim"


def test_explain_changes_nothing(
    run: Run, simulation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    for name in ("CDI_ROOT", "STATE_DIR", "RUN_DIR"):
        monkeypatch.setenv(f"GPUSLICE_{name}", str(state / name))
    claim = _claim(tmp_path, _share())
    assert run("explain", "--claim", claim, "--simulate", simulation).status == 0
    assert not state.exists()


def test_explain_asks_who_supervises_shares_where_it_is_named(
    run: Run, simulation: str, tmp_path: Path
) -> None:
    claim = _claim(tmp_path, _share())
    command = ("explain", "--claim", claim, "--simulate", simulation)
    socket = tmp_path / "mpsd.sock"
    away = run(*command, "--mpsd-socket", str(socket))
    assert away.status == 1
    assert f"gpuslice mpsd does not serve {socket}" in away.err
    sliced = run(*command, "--run-dir", str(tmp_path), "--sharing", "time-slicing", "--json")
    (device,) = json.loads(sliced.out)["devices"]
    assert device["sharing"] == "TimeSlicing"


def test_explain_reads_standard_input_and_yaml(run: Run, simulation: str) -> None:
    claim = (
        "kind: ResourceClaim\nmetadata: {name: mine}\nspec: {devices: {}}\n"
        "status: {allocation: {devices: {results: [{request: gpu, driver: gpuslice.io,\n"
        f"  pool: node-b, device: {gpu_device(builders.uuid(1))}}}]}}}}}}\n"
    )
    ended = run("explain", "--claim", "-", "--simulate", simulation, "--json", stdin=claim)
    explained = json.loads(ended.out)
    assert explained["claim"]["name"] == "mine"
    assert explained["node"] == "node-b"
    (device,) = explained["devices"]
    assert (device["use"], device["computePercent"], device["sharing"]) == ("Exclusive", 100, None)
    assert device["memoryMiB"] == 15856
    assert device["product"] == "Tesla P100-PCIE-16GB"
    assert next(iter(explained["cdiSpecs"].values()))["kind"] == "gpuslice.io/claim"


def test_explain_tells_shares_of_one_gpu_apart(run: Run, simulation: str, tmp_path: Path) -> None:
    config = {
        "source": "FromClaim",
        "requests": ["b"],
        "opaque": {
            "driver": builders.DRIVER,
            "parameters": {
                "apiVersion": "config.gpuslice.io/v1alpha1",
                "kind": "SliceConfig",
                "qos": "Burstable",
            },
        },
    }
    requests = [
        {"name": name, "exactly": {"capacity": {"requests": {"compute": "1", "memory": "1Gi"}}}}
        for name in ("a", "b")
    ]
    claim = _claim(
        tmp_path,
        _share(request="a", share=1, compute=30, memory="4Gi"),
        _share(request="b", share=2, compute=20, memory="2Gi"),
        requests=requests,
        config=[config],
    )
    ended = run("explain", "--claim", claim, "--simulate", simulation, "--json")
    devices = json.loads(ended.out)["devices"]
    found = [(each["requests"], each["computePercent"], each["qos"]) for each in devices]
    assert found == [(["a"], 30, "Guaranteed"), (["b"], 20, "Burstable")]


def test_explain_says_so_when_nothing_is_ours(run: Run, simulation: str, tmp_path: Path) -> None:
    claim = _claim(tmp_path, _share() | {"driver": "other.example.com"})
    ended = run("explain", "--claim", claim, "--simulate", simulation)
    assert ended.status == 0
    assert "No device of this driver is allocated to it: nothing would be done." in ended.out


def test_explain_ends_with_1_and_the_reason_when_the_claim_is_refused(
    run: Run, simulation: str, tmp_path: Path
) -> None:
    claim = _claim(tmp_path, _share() | {"device": "gpu-gone"})
    ended = run("explain", "--claim", claim, "--simulate", simulation)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("gpuslice: claim team-a/claim-1, request gpu: device gpu-gone ")
    as_json = run("explain", "--claim", claim, "--simulate", simulation, "--json")
    assert as_json.status == 1
    refusal = json.loads(as_json.out)
    assert ended.err == f"gpuslice: {refusal['refusal']}\n"
    assert refusal["retryable"] in {True, False}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "kind: Pod\nmetadata: {}\n",
            (
                "holds no ResourceClaim (kind 'Pod'): give one object with its metadata, spec and "
                "status.allocation"
            ),
        ),
        (
            "[]",
            (
                "holds no ResourceClaim (kind None): give one object with its metadata, spec and "
                "status.allocation"
            ),
        ),
        ("a: [", "is not YAML: while parsing a flow node "),
        ("[" * 5000, "is not YAML: maximum recursion depth exceeded"),
        ("kind: 2026-99-99", "is not YAML: month must be in 1..12"),
    ],
)
def test_explain_ends_with_1_when_the_file_holds_no_claim(
    run: Run, tmp_path: Path, content: str, sentence: str
) -> None:
    path = tmp_path / "claim.yaml"
    path.write_text(content, encoding="utf-8")
    ended = run("explain", "--claim", str(path), "--simulate", "mixed")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith(f"gpuslice: --claim {path} {sentence}")
    assert len(ended.err.splitlines()) == 1
