"""The journal's files: shared by processes, damaged, full, read-only."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.durable import DurableFolder
from dra_driver.adapters.record_file import RecordFiles
from dra_driver.errors import AdapterError
from dra_driver.model.record import RecordState
from dra_driver.state import codec
from tests.builders import claim_uid
from tests.fakes.clock import FakeClock
from tests.fakes.recorder import FakeRecorder
from tests.records import record
from tests.waiting import descriptors, eventually

UNREADABLE = "journal_unreadable_total"


def open_journal(state: Path, recorder: FakeRecorder | None = None) -> RecordFiles:
    return RecordFiles(
        state, state / "run", clock=SystemClock(), recorder=recorder or FakeRecorder()
    )


def uids(journal: RecordFiles) -> list[str]:
    with journal.transaction() as view:
        return sorted(view.records())


def put(journal: RecordFiles, number: int) -> None:
    with journal.transaction() as view:
        view.put(record(number))


def test_journal_shows_changes_of_another_process(tmp_path: Path) -> None:
    ours, theirs = open_journal(tmp_path), open_journal(tmp_path)
    put(ours, 1)
    assert uids(theirs) == [claim_uid(1)]
    with theirs.transaction() as view:
        view.delete(claim_uid(1))
    put(theirs, 2)
    assert uids(ours) == [claim_uid(2)]


def test_view_shows_changes_of_another_process_and_waits_for_one_that_was_begun(
    tmp_path: Path,
) -> None:
    ours, theirs = open_journal(tmp_path), open_journal(tmp_path)

    def seen() -> list[str]:
        with ours.view() as view:
            return sorted(view.records())

    put(theirs, 3)
    assert seen() == [claim_uid(3)]
    with ThreadPoolExecutor(1) as pool:
        with theirs.transaction():
            # Nothing has changed yet, so nobody waits for the lock.
            assert seen() == [claim_uid(3)]
        with theirs.transaction() as view:
            view.put(record(1))
            looking = pool.submit(seen)
            view.put(record(2))
        assert looking.result(10) == [claim_uid(1), claim_uid(2), claim_uid(3)]


def test_journal_reads_nothing_again_when_nothing_changed(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    put(journal, 1)
    (tmp_path / "claims" / f"{claim_uid(1)}.json").unlink()
    assert uids(journal) == [claim_uid(1)]
    put(open_journal(tmp_path), 2)
    assert uids(journal) == [claim_uid(2)]


def test_journal_sees_another_process_that_died_before_its_change(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    put(journal, 1)
    entry = tmp_path / "claims" / f"{claim_uid(2)}.json"
    with journal.transaction():
        count, name = (tmp_path / "journal.lock").read_text().split()
    entry.write_text(codec.encode(record(2)))
    (tmp_path / "journal.lock").write_text(f"{int(count) + 1:020d} {name}\n")
    assert uids(journal) == [claim_uid(1), claim_uid(2)]


def test_journal_survives_when_its_lock_file_was_removed(tmp_path: Path) -> None:
    ours, theirs = open_journal(tmp_path), open_journal(tmp_path)
    put(ours, 1)
    (tmp_path / "journal.lock").unlink()
    put(theirs, 2)
    assert uids(ours) == [claim_uid(1), claim_uid(2)]


def test_journal_is_private_and_leaves_no_temporary_files(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    put(journal, 1)
    (entry,) = (tmp_path / "claims").iterdir()
    assert entry.stat().st_mode & 0o777 == 0o600


def test_journal_leaves_no_file_of_an_intended_record_that_is_not_put(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    with journal.staged(record(1)):
        assert len(list((tmp_path / "claims").iterdir())) == 1
    assert list((tmp_path / "claims").iterdir()) == []


def test_journal_writes_an_intended_record_out_while_another_holds_the_lock(
    tmp_path: Path,
) -> None:
    holder, writer = open_journal(tmp_path), open_journal(tmp_path)

    def write() -> None:
        intended = record(1)
        with writer.staged(intended), writer.transaction() as view:
            view.put(intended)

    with ThreadPoolExecutor(1) as pool:
        with holder.transaction():
            writing = pool.submit(write)
            eventually((tmp_path / "claims").exists, 10, "the record is written out")
            eventually(lambda: list((tmp_path / "claims").iterdir()), 10, "a file is there")
            assert not writing.done()
        writing.result(10)
    assert uids(holder) == [claim_uid(1)]


def test_journal_removes_leftovers_of_a_writer_that_died(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    leftover = tmp_path / "claims" / f".{claim_uid(1)}.json.0123.tmp"
    leftover.write_text("{")
    assert uids(open_journal(tmp_path)) == []
    assert not leftover.exists()


def test_journal_sets_a_damaged_entry_aside_and_says_so_once(tmp_path: Path) -> None:
    recorder = FakeRecorder()
    (tmp_path / "claims").mkdir()
    entry = tmp_path / "claims" / f"{claim_uid(1)}.json"
    for _ in range(2):
        entry.write_bytes(b"\x00" * 10)
        assert uids(open_journal(tmp_path, recorder)) == []
    assert uids(open_journal(tmp_path, recorder)) == []
    assert recorder.counted(UNREADABLE, cause="damaged") == 2
    assert sorted(path.name for path in entry.parent.iterdir()) == [
        f"{claim_uid(1)}.json.damaged-1",
        f"{claim_uid(1)}.json.damaged-2",
    ]


def test_journal_waits_for_the_disk_only_with_what_outlives_the_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    journal = open_journal(tmp_path)
    intent, prepared = record(1, state=RecordState.RESERVED), record(1)
    monkeypatch.setattr(os, "fsync", watched)
    with journal.staged(intent), journal.transaction() as view:
        view.put(intent)
    assert synced == []
    assert uids(open_journal(tmp_path)) == [claim_uid(1)]
    with journal.staged(prepared), journal.transaction() as view:
        view.put(prepared)
    assert synced == [False, True]
    with journal.staged(intent), journal.transaction() as view:
        view.put(intent)
        view.delete(claim_uid(1))
    assert synced == [False, True, True]


def test_journal_sets_aside_an_entry_that_speaks_of_another_claim(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / f"{claim_uid(1)}.json").write_text(codec.encode(record(2)))
    (tmp_path / "claims" / f"{claim_uid(3)}.json").mkdir()
    assert uids(open_journal(tmp_path)) == []
    assert len(list((tmp_path / "claims").glob("*.damaged-1"))) == 2


def test_journal_sets_aside_a_pipe_of_an_entrys_name_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    os.mkfifo(tmp_path / "claims" / f"{claim_uid(1)}.json")
    assert uids(open_journal(tmp_path)) == []
    assert len(list((tmp_path / "claims").glob("*.damaged-1"))) == 1


def test_journal_loses_nothing_when_the_process_is_out_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(open_journal(tmp_path), 1)
    journal = open_journal(tmp_path)

    def out_of_descriptors(folder: DurableFolder, name: str) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files", name)

    with monkeypatch.context() as patched:
        patched.setattr(DurableFolder, "read", out_of_descriptors)
        with pytest.raises(AdapterError, match="Too many open files"):
            uids(journal)
    assert uids(journal) == [claim_uid(1)]


def test_journal_sets_no_successor_aside_when_an_entry_vanishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(open_journal(tmp_path), 1)
    # It is listed, and gone when it is read.
    monkeypatch.setattr(DurableFolder, "read", lambda folder, name: None)
    assert uids(open_journal(tmp_path)) == []


def test_journal_leaves_a_newer_entry_byte_equal(tmp_path: Path) -> None:
    recorder = FakeRecorder()
    (tmp_path / "claims").mkdir()
    entry = tmp_path / "claims" / f"{claim_uid(1)}.json"
    content = json.dumps(json.loads(codec.encode(record(1))) | {"version": "v99"})
    entry.write_text(content)
    journal = open_journal(tmp_path, recorder)
    with journal.transaction() as view, pytest.raises(AdapterError, match=r"newer.*v99.*upgrade"):
        view.put(record(1))
    assert entry.read_text() == content
    put(open_journal(tmp_path), 2)
    assert uids(journal) == [claim_uid(2)]
    assert recorder.counted(UNREADABLE, cause="newer") == 1


def test_journal_keeps_the_old_record_when_the_disk_is_full(tmp_path: Path) -> None:
    put(open_journal(tmp_path), 1)
    # A file size limit makes write() fail as a full disk does, and needs no root.
    code = (
        "import resource, sys; from pathlib import Path; from dataclasses import replace\n"
        "from tests.component.test_record_files import open_journal, record\n"
        "from dra_driver.errors import AdapterError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "journal = open_journal(Path(sys.argv[1]))\n"
        "try:\n"
        "    with journal.transaction() as view: view.put(replace(record(1), boot_id='new'))\n"
        "except AdapterError as error: print(error)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "--state-dir" in child.stdout
    assert "File too large; raise the file size limit" in child.stdout
    with open_journal(tmp_path).transaction() as view:
        assert view.records() == {claim_uid(1): record(1)}
    assert [path.name for path in (tmp_path / "claims").iterdir()] == [f"{claim_uid(1)}.json"]


def test_journal_says_what_to_do_when_its_folder_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AdapterError, match=r"file.*--state-dir.*remove it or name another folder"):
        put(open_journal(tmp_path / "file"), 1)


def test_journal_gives_up_when_another_process_holds_the_lock(tmp_path: Path) -> None:
    holder, waiter = (
        open_journal(tmp_path),
        RecordFiles(
            tmp_path, tmp_path / "run", clock=FakeClock(step_s=6.0), recorder=FakeRecorder()
        ),
    )
    refused = pytest.raises(AdapterError, match="locked by another process")
    with holder.transaction(), refused, waiter.transaction():
        pass


def test_journal_opens_no_file_for_good(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    put(journal, 1)
    before = descriptors()
    for _ in range(50):
        put(journal, 1)
    assert descriptors() == before
