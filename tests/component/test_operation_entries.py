"""What else may lie where operations of the hook are kept."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.adapters.operation_store import OperationFiles
from dra_driver.errors import AdapterError
from tests.component.test_operation_store import FULL


def stored(root: Path) -> tuple[OperationFiles, Path]:
    store = OperationFiles(root, root / "run")
    store.save(FULL)
    return store, root / "operations"


def test_store_closes_its_folder_to_others_when_it_was_open(tmp_path: Path) -> None:
    store, folder = stored(tmp_path)
    for change in (store.load, lambda: store.save(FULL)):
        folder.chmod(0o755)
        change()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_store_makes_no_folder_when_there_is_nothing_to_keep(tmp_path: Path) -> None:
    assert OperationFiles(tmp_path, tmp_path / "run").load() == ()
    assert not (tmp_path / "operations").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_entry_that_is_no_file_is_set_aside_and_costs_no_other(tmp_path: Path, kind: str) -> None:
    store, folder = stored(tmp_path)
    make(kind, folder / "op-2.json")

    assert store.load() == (FULL,)
    assert not os.path.lexists(folder / "op-2.json")
    assert os.path.lexists(folder / "op-2.json.damaged-1")


def test_entry_with_a_name_too_long_to_set_aside_costs_no_other(tmp_path: Path) -> None:
    store, folder = stored(tmp_path)
    (folder / f"{'x' * 250}.json").write_text("{")

    assert store.load() == (FULL,)
    assert (folder / f"{'x' * 250}.json").exists()


@pytest.mark.parametrize("kind", ["folder", "pipe", "loop"])
def test_temporary_entry_that_is_no_file_is_left_alone(tmp_path: Path, kind: str) -> None:
    store, folder = stored(tmp_path)
    make(kind, folder / ".x.tmp")

    assert store.load() == (FULL,)
    assert os.path.lexists(folder / ".x.tmp")


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "gpuslice.io/operation/v9"},
        {"state": "Levitating"},
        {"owner": "Other"},
        {"code": "PAYMENT_REQUIRED"},
    ],
)
def test_operation_of_a_newer_release_is_left_alone_and_costs_no_other(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    store, folder = stored(tmp_path)
    path = folder / "op-2.json"
    body = json.loads((folder / "op-1.json").read_text())
    path.write_text(json.dumps(body | {"id": "op-2"} | changes))
    before = path.read_bytes()

    assert store.load() == (FULL,)
    assert store.load() == (FULL,)
    with pytest.raises(AdapterError, match="written by a newer gpuslice"):
        store.save(replace(FULL, id="op-2"))
    with pytest.raises(AdapterError, match="written by a newer gpuslice"):
        store.forget("op-2")
    assert path.read_bytes() == before
    store.save(replace(FULL, id="op-3"))
    assert [each.id for each in store.load()] == ["op-1", "op-3"]


def make(kind: str, path: Path) -> None:
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to(path.name)
