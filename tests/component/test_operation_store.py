"""Operations of the hook, and marks of claims, as files."""

from __future__ import annotations

import stat
from dataclasses import replace
from operator import is_
from pathlib import Path
from shutil import rmtree

import pytest

from dra_driver.adapters.claim_markers import MarkerFiles
from dra_driver.adapters.operation_store import OperationFiles
from dra_driver.checkpoint.table import KEPT_S, OperationTable
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Code, HookPhase, OperationState, StoredAnswer
from dra_driver.model.cuda import CudaState, DeviceMapping
from tests.builders import claim_uid, uuid
from tests.unit.operating import operation, process
from tests.unit.test_compatibility import board, manifest

FULL = operation(
    CudaState.RUNNING,
    CudaState.LOCKED,
    runner=process(9),
    checkpoint_id="op-0",
    manifest=manifest(board(0)),
    device_map=(DeviceMapping(old=uuid(0), new=uuid(1)),),
    text="no room",
    acknowledged=True,
    warnings=("a", "b"),
    answers=(
        StoredAnswer(phase=HookPhase.PRE_CHECKPOINT, digest="d", code=Code.ABORTED, text="t"),
    ),
)


def test_operation_is_read_as_it_was_saved_and_only_by_root(tmp_path: Path) -> None:
    OperationFiles(tmp_path, tmp_path / "run").save(FULL)
    OperationFiles(tmp_path, tmp_path / "run").save(
        replace(FULL, id="op-0", manifest=None, runner=None)
    )

    assert OperationFiles(tmp_path, tmp_path / "run").load() == (
        replace(FULL, id="op-0", manifest=None, runner=None),
        FULL,
    )
    [*files] = sorted((tmp_path / "operations").iterdir())
    assert [path.name for path in files] == ["op-0.json", "op-1.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "operations").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"version": "of another program"}', b"\xff", b"[" * 100_000],
)
def test_damaged_operation_is_kept_aside_and_costs_no_other(tmp_path: Path, content: bytes) -> None:
    store = OperationFiles(tmp_path, tmp_path / "run")
    store.save(FULL)
    (tmp_path / "operations/op-2.json").write_bytes(content)

    assert store.load() == (FULL,)
    assert (tmp_path / "operations/op-2.json.damaged-1").read_bytes() == content
    store.save(replace(FULL, id="op-2"))
    assert len(store.load()) == 2


def test_operation_under_another_ones_name_is_kept_aside(tmp_path: Path) -> None:
    store = OperationFiles(tmp_path, tmp_path / "run")
    store.save(FULL)
    (tmp_path / "operations/op-1.json").rename(tmp_path / "operations/op-7.json")

    assert store.load() == ()


def test_id_that_is_no_name_of_a_file_is_refused(tmp_path: Path) -> None:
    for name in ("../x", "", ".x", "a/b", "x" * 129):
        with pytest.raises(AdapterError, match="no id of an operation"):
            OperationFiles(tmp_path, tmp_path / "run").save(replace(FULL, id=name))


def test_operation_is_in_memory_until_it_is_to_last_and_never_after(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    store = OperationFiles(state, run)

    store.save(FULL, lasting=False)
    assert names(run) == ["op-1.json"]
    assert not state.exists()
    assert store.load() == (FULL,)
    assert stat.S_IMODE((run / "operations").stat().st_mode) == 0o700

    store.save(replace(FULL, text="lasts"))
    assert (names(state), names(run)) == (["op-1.json"], [])
    store.save(replace(FULL, text="goes on"), lasting=False)
    assert (names(state), names(run)) == (["op-1.json"], [])
    assert [each.text for each in OperationFiles(state, run).load()] == ["goes on"]


def test_lasting_operation_counts_when_the_older_one_is_still_there(tmp_path: Path) -> None:
    store = OperationFiles(tmp_path, tmp_path / "run")
    store.save(FULL, lasting=False)
    OperationFiles(tmp_path, tmp_path / "else").save(replace(FULL, text="lasts"))

    assert [each.text for each in store.load()] == ["lasts"]
    store.forget("op-1")
    assert store.load() == ()


def test_power_cut_leaves_what_lasts(tmp_path: Path) -> None:
    store = OperationFiles(tmp_path / "state", tmp_path / "run")
    store.save(FULL, lasting=False)
    store.save(replace(FULL, id="op-2"))
    rmtree(tmp_path / "run")

    assert [each.id for each in store.load()] == ["op-2"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "operations").iterdir())


def test_old_operations_are_forgotten_when_they_have_ended(tmp_path: Path) -> None:
    store = OperationFiles(tmp_path, tmp_path / "run")
    table = OperationTable(store)
    table.load()
    table.save(FULL)
    table.save(replace(FULL, id="op-2", state=OperationState.DONE))
    table.save(replace(FULL, id="op-3", state=OperationState.DONE, changed_wall_s=KEPT_S))

    table.prune(KEPT_S + 100.0)

    assert [each.id for each in store.load()] == ["op-1", "op-3"]
    assert [each.id for each in table.all()] == ["op-1", "op-3"]


def test_load_reads_what_has_changed_alone_when_another_process_writes(tmp_path: Path) -> None:
    written, waiting = (OperationFiles(tmp_path, tmp_path / "run") for _ in range(2))
    written.save(FULL)
    written.save(replace(FULL, id="op-2", text="a"), lasting=False)
    first = waiting.load()
    assert all(map(is_, waiting.load(), first))

    written.save(replace(FULL, id="op-2", text="b"), lasting=False)
    kept, changed = waiting.load()
    assert kept is first[0]
    assert changed == replace(FULL, id="op-2", text="b")
    written.forget("op-1")
    assert waiting.load() == (changed,)


def test_mark_stands_until_it_is_removed_and_stays_the_same_file(tmp_path: Path) -> None:
    markers = MarkerFiles(tmp_path / "run")
    assert markers.claims() == ()
    markers.place(claim_uid(2))
    first = (tmp_path / "run/claims" / claim_uid(2)).stat()

    markers.place(claim_uid(2))
    markers.place(claim_uid(1))

    assert markers.claims() == (claim_uid(1), claim_uid(2))
    assert (tmp_path / "run/claims" / claim_uid(2)).stat().st_ino == first.st_ino
    markers.remove(claim_uid(2))
    markers.remove(claim_uid(2))
    assert markers.claims() == (claim_uid(1),)
    with pytest.raises(AdapterError, match="no UID of a claim"):
        markers.place("../x")


def test_mark_tells_of_a_run_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")

    with pytest.raises(AdapterError, match="--run-dir"):
        MarkerFiles(tmp_path / "run").place(claim_uid(1))
