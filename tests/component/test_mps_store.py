"""What the MPS supervisor keeps across restarts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dra_driver.adapters.mps_store import SharesFiles
from dra_driver.model.mps import ComputeMode, DesiredShares, Proof
from dra_driver.model.share import Expose, GpuShare, OnExceed, Qos, Sharing
from tests.builders import BOOT, uuid

FULL = DesiredShares(
    gpu=uuid(0),
    shares=(
        GpuShare(
            id="a",
            gpu=uuid(0),
            sharing=Sharing.MPS,
            compute_percent=25,
            memory_mib=4096,
            priority=1,
            qos=Qos.BURSTABLE,
            on_exceed=OnExceed.TERMINATE,
            expose=Expose.FOLDER,
        ),
        GpuShare(id="b", gpu=uuid(0), sharing=Sharing.MPS, compute_percent=50, memory_mib=8192),
    ),
    mode_before=ComputeMode.DEFAULT,
    proof=Proof(control_only=False, reason="it hung"),
)
EMPTY = DesiredShares(gpu=uuid(1))


def _store(run_dir: Path, *, boot_id: str = BOOT, driver: str | None = "550.163.01") -> SharesFiles:
    return SharesFiles(run_dir, boot_id=boot_id, driver_version=lambda: driver)


def _file(run_dir: Path, number: int = 0) -> Path:
    return run_dir / f"mpsd/{uuid(number)}.json"


def test_store_gives_back_what_was_saved(tmp_path: Path) -> None:
    assert _store(tmp_path).load() == {}
    _store(tmp_path).save(FULL)
    _store(tmp_path).save(EMPTY)
    assert _store(tmp_path).load() == {uuid(0): FULL, uuid(1): EMPTY}


def test_store_forgets(tmp_path: Path) -> None:
    _store(tmp_path).save(FULL)
    _store(tmp_path).forget(uuid(0))
    _store(tmp_path).forget(uuid(0))
    assert _store(tmp_path).load() == {}


def test_store_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int) -> None:
        raise AssertionError("the run folder is lost at a reboot")

    monkeypatch.setattr(os, "fsync", refuse)
    _store(tmp_path).save(FULL)
    _store(tmp_path).forget(uuid(0))


def test_store_drops_what_a_power_cut_has_emptied(tmp_path: Path) -> None:
    _store(tmp_path).save(EMPTY)
    _file(tmp_path).touch()
    assert _store(tmp_path).load() == {uuid(1): EMPTY}
    assert [path.name for path in (tmp_path / "mpsd").iterdir()] == [f"{uuid(1)}.json"]


def test_store_keeps_nothing_of_another_boot(tmp_path: Path) -> None:
    _store(tmp_path, boot_id="another").save(FULL)
    assert _store(tmp_path).load() == {}
    assert not _file(tmp_path).exists()


def test_store_leaves_the_proof_out_when_the_driver_is_another(tmp_path: Path) -> None:
    _store(tmp_path).save(FULL)
    found = _store(tmp_path, driver="555.58.02").load()[uuid(0)]
    assert found.proof is None
    assert found.shares == FULL.shares
    assert found.mode_before is FULL.mode_before


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '"text"',
        json.dumps({"version": "gpuslice.io/mpsd/v9", "bootId": BOOT}),
        json.dumps(
            {"version": "gpuslice.io/mpsd/v1", "bootId": BOOT, "gpu": uuid(5), "shares": []}
        ),
        json.dumps({"version": "gpuslice.io/mpsd/v1", "bootId": BOOT, "gpu": uuid(0), "shares": 3}),
        json.dumps(
            {"version": "gpuslice.io/mpsd/v1", "bootId": BOOT, "gpu": uuid(0), "shares": [{}]}
        ),
    ],
)
def test_store_sets_aside_what_is_damaged_and_keeps_the_rest(tmp_path: Path, content: str) -> None:
    _store(tmp_path).save(EMPTY)
    _file(tmp_path).write_text(content)
    assert _store(tmp_path).load() == {uuid(1): EMPTY}
    aside = _file(tmp_path).with_name(f"{_file(tmp_path).name}.damaged-1")
    assert aside.read_text() == content
    _file(tmp_path).write_text(content)
    assert _store(tmp_path).load() == {uuid(1): EMPTY}
    assert aside.with_name(f"{_file(tmp_path).name}.damaged-2").exists()


def test_store_refuses_wrong_kinds_of_values(tmp_path: Path) -> None:
    _store(tmp_path).save(FULL)
    body = json.loads(_file(tmp_path).read_text())
    body["shares"][0]["memoryMib"] = True
    _file(tmp_path).write_text(json.dumps(body))
    assert _store(tmp_path).load() == {}
