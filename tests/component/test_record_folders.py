"""Which of the journal's entries lie on the disk, and which in the run folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.adapters.record_file import RecordFiles
from dra_driver.errors import AdapterError
from dra_driver.model.record import Record, RecordState
from dra_driver.state import codec
from tests.builders import claim_uid
from tests.component.test_record_files import open_journal, uids
from tests.fakes.recorder import FakeRecorder
from tests.records import record


def enter(journal: RecordFiles, entered: Record) -> None:
    with journal.transaction() as view:
        view.put(entered)


def entry_of(number: int) -> str:
    return f"{claim_uid(number)}.json"


def files(*folders: Path) -> tuple[list[str], ...]:
    return tuple(sorted(path.name for path in folder.glob("*")) for folder in folders)


def test_journal_keeps_in_the_state_folder_what_outlives_the_boot_alone(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    lasting, passing = tmp_path / "claims", tmp_path / "run/intents"
    enter(journal, record(1, state=RecordState.RESERVED))
    assert files(lasting, passing) == ([], [entry_of(1)])
    assert (passing / entry_of(1)).stat().st_mode & 0o777 == 0o600
    enter(journal, record(1))
    assert files(lasting, passing) == ([entry_of(1)], [])
    enter(journal, replace(record(1, state=RecordState.RESERVED), boot_id="another"))
    assert files(lasting, passing) == ([], [entry_of(1)])
    with journal.transaction() as view:
        view.delete(claim_uid(1))
    assert files(lasting, passing) == ([], [])


def test_journal_goes_on_from_intents_that_an_older_release_left(tmp_path: Path) -> None:
    lasting, passing = tmp_path / "claims", tmp_path / "run/intents"
    lasting.mkdir()
    for number in (1, 2):
        intent = record(number, state=RecordState.RESERVED)
        (lasting / entry_of(number)).write_text(codec.encode(intent))
    journal = open_journal(tmp_path)
    assert uids(journal) == [claim_uid(1), claim_uid(2)]
    enter(journal, record(1))
    with journal.transaction() as view:
        view.delete(claim_uid(2))
    assert files(lasting, passing) == ([entry_of(1)], [])
    assert uids(open_journal(tmp_path)) == [claim_uid(1)]


def test_journal_believes_the_entry_that_came_later_when_a_process_was_killed_between(
    tmp_path: Path,
) -> None:
    lasting, passing = tmp_path / "claims", tmp_path / "run/intents"
    enter(open_journal(tmp_path), record(1))
    passing.mkdir(parents=True)
    intent = record(1, state=RecordState.RESERVED)
    (passing / entry_of(1)).write_text(codec.encode(intent))
    with open_journal(tmp_path).transaction() as view:
        assert view.records() == {claim_uid(1): record(1)}
    assert files(lasting, passing) == ([entry_of(1)], [])


def test_journal_goes_on_when_an_intent_that_counts_no_more_cannot_be_removed(
    tmp_path: Path,
) -> None:
    journal, passing = open_journal(tmp_path), tmp_path / "run/intents"
    enter(journal, record(1, state=RecordState.RESERVED))
    # As a folder that cannot be written to, and needs no mount.
    (passing / entry_of(1)).unlink()
    (passing / entry_of(1)).mkdir()
    for number in (1, 2):
        enter(journal, record(number))
    journal = open_journal(tmp_path)
    with journal.transaction() as view:
        assert view.records() == {claim_uid(1): record(1), claim_uid(2): record(2)}
        view.delete(claim_uid(2))
        with pytest.raises(AdapterError, match="cannot remove"):
            view.delete(claim_uid(1))
    assert uids(open_journal(tmp_path)) == [claim_uid(1)]


def test_journal_drops_an_intent_that_a_power_cut_has_emptied(tmp_path: Path) -> None:
    recorder, theirs = FakeRecorder(), open_journal(tmp_path)
    enter(theirs, record(2))
    (tmp_path / "claims" / f"{claim_uid(1)}.json").touch()
    assert uids(open_journal(tmp_path, recorder)) == [claim_uid(2)]
    assert [path.name for path in (tmp_path / "claims").iterdir()] == [f"{claim_uid(2)}.json"]
    assert recorder.counted("journal_unreadable_total", cause="damaged") == 0
    assert uids(theirs) == [claim_uid(2)]
