"""What every Journal keeps, in memory and in files alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.adapters.clock import SystemClock
from dra_driver.adapters.record_file import RecordFiles
from dra_driver.errors import AdapterError
from dra_driver.model.claim import PodRef
from dra_driver.model.record import Record, RecordState
from dra_driver.ports import Journal
from dra_driver.state import codec
from tests.builders import claim_uid, uuid
from tests.fakes.journal import FakeJournal
from tests.fakes.recorder import FakeRecorder
from tests.records import record

Plant = Callable[[str, bytes], None]


class Setup:
    """A journal, and a way to plant bytes as if another release had written them."""

    def __init__(self, journal: Journal, plant: Plant) -> None:
        self.journal = journal
        self.plant = plant

    def put(self, *records: Record) -> None:
        for each in records:
            with self.journal.transaction() as journal:
                journal.put(each)

    def records(self) -> dict[str, Record]:
        with self.journal.transaction() as journal:
            return dict(journal.records())


def files(tmp_path: Path) -> RecordFiles:
    return RecordFiles(
        tmp_path / "state", tmp_path / "run", clock=SystemClock(), recorder=FakeRecorder()
    )


@pytest.fixture(params=["fake", "files"])
def setup(request: pytest.FixtureRequest, tmp_path: Path) -> Setup:
    if request.param == "fake":
        fake = FakeJournal()
        return Setup(fake, fake.entries.__setitem__)

    def plant(uid: str, content: bytes) -> None:
        path = tmp_path / "state/claims" / f"{uid}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return Setup(files(tmp_path), plant)


def newer(number: int) -> bytes:
    body = json.loads(codec.encode(record(number)))
    return json.dumps(body | {"version": "gpuslice.io/record/v99"}).encode()


def test_on_gives_the_records_of_gpus_and_of_pods(setup: Setup) -> None:
    pods = tuple(PodRef(f"web-{number}", f"pod-{number}") for number in (0, 1))
    one = replace(record(1), pods=pods)
    two = replace(record(2, on=1), pods=pods[1:])
    setup.put(one, two, record(3, on=1))
    with setup.journal.view() as journal:
        assert set(journal.on(pods=["pod-1", "pod-2"])) == {claim_uid(1), claim_uid(2)}
        assert set(journal.on([uuid(1)], pods=["pod-0"])) == {claim_uid(n) for n in (1, 2, 3)}
    setup.put(replace(one, pods=()))
    with setup.journal.transaction() as transaction:
        assert set(transaction.on(pods=["pod-0", "pod-1"])) == {claim_uid(2)}
        transaction.delete(claim_uid(2))
        assert not transaction.on(pods=["pod-0", "pod-1"])


def test_journal_is_empty_when_new(setup: Setup) -> None:
    assert setup.records() == {}


def test_journal_gives_back_equal_records(setup: Setup) -> None:
    setup.put(record(1), record(2, kind="whole", on=1), record(3, kind="time-slice"))
    assert setup.records() == {
        claim_uid(1): record(1),
        claim_uid(2): record(2, kind="whole", on=1),
        claim_uid(3): record(3, kind="time-slice"),
    }


def test_journal_holds_the_newest_when_put_again(setup: Setup) -> None:
    setup.put(record(1, state=RecordState.RESERVED), record(1))
    assert setup.records() == {claim_uid(1): record(1)}


def test_journal_forgets_a_record_when_deleted(setup: Setup) -> None:
    setup.put(record(1), record(2))
    with setup.journal.transaction() as journal:
        journal.delete(claim_uid(1))
        assert claim_uid(1) not in journal.records()
    assert list(setup.records()) == [claim_uid(2)]


def test_journal_deletes_nothing_without_error_when_there_is_none(setup: Setup) -> None:
    with setup.journal.transaction() as journal:
        journal.delete(claim_uid(9))
    assert setup.records() == {}


def test_journal_view_stays_as_it_was_when_kept_after_the_transaction(setup: Setup) -> None:
    setup.put(record(1))
    with setup.journal.transaction() as journal:
        kept = journal.records()
    setup.put(replace(record(1), boot_id="another"))
    assert kept[claim_uid(1)] == record(1)


def test_journal_gives_the_records_of_a_gpu_as_they_come_and_go(setup: Setup) -> None:
    def on(*numbers: int) -> list[str]:
        with setup.journal.transaction() as journal:
            return sorted(journal.on([uuid(number) for number in numbers]))

    setup.put(record(1), record(2, kind="whole", on=1), record(3, on=0))
    assert on(0) == [claim_uid(1), claim_uid(3)]
    assert on(0, 1) == [claim_uid(1), claim_uid(2), claim_uid(3)]
    setup.put(record(1, on=1))
    with setup.journal.transaction() as journal:
        journal.delete(claim_uid(2))
    assert on(0) == [claim_uid(3)]
    assert on(1) == [claim_uid(1)]
    assert on(7) == []


def test_journal_shows_the_same_in_a_view_as_in_a_transaction(setup: Setup) -> None:
    setup.plant(claim_uid(2), newer(2))
    for change in (record(1), record(1, on=1), record(3)):
        setup.put(change)
        with setup.journal.transaction() as journal:
            expected = journal.records(), journal.newer(), journal.on([uuid(1)])
        with setup.journal.view() as view:
            assert (view.records(), view.newer(), view.on([uuid(1)])) == expected


def test_journal_enters_an_intended_record_only_when_it_is_put(setup: Setup) -> None:
    first, second = record(1), record(2)
    with setup.journal.staged(first):
        assert setup.records() == {}
    assert setup.records() == {}
    with setup.journal.staged(first), setup.journal.transaction() as journal:
        journal.put(second)
        journal.put(first)
    assert setup.records() == {claim_uid(1): first, claim_uid(2): second}


def test_journal_writes_a_record_anew_that_was_staged_before(setup: Setup) -> None:
    first = record(1)
    with setup.journal.staged(first):
        pass
    setup.put(first)
    assert setup.records() == {claim_uid(1): first}
    with setup.journal.staged(first), setup.journal.transaction() as journal:
        journal.put(first)
        journal.delete(claim_uid(1))
        journal.put(first)
    assert setup.records() == {claim_uid(1): first}


def test_journal_forgets_a_record_that_names_one_pod_twice(setup: Setup) -> None:
    pods = (PodRef("web-0", "pod-0"), PodRef("web-1", "pod-0"))
    setup.put(replace(record(1), pods=pods), replace(record(1), pods=()))
    with setup.journal.view() as journal:
        assert not journal.on(pods=["pod-0"])


def test_journal_keeps_a_newer_entry_and_refuses_to_touch_it(setup: Setup) -> None:
    setup.plant(claim_uid(1), newer(1))
    with setup.journal.transaction() as journal:
        assert journal.records() == {}
        kept = journal.newer()[claim_uid(1)]
        assert "newer gpuslice" in kept.text
        assert kept.held is not None
        assert kept.held.uses == record(1).uses
        with pytest.raises(AdapterError, match="newer gpuslice"):
            journal.put(record(1))
        with pytest.raises(AdapterError, match="newer gpuslice"):
            journal.delete(claim_uid(1))
    setup.put(record(2))
    assert list(setup.records()) == [claim_uid(2)]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x00\xff\x80", b"[]", b"7", newer(1)[:80], b'{"version": 3}']
)
def test_journal_loses_only_the_damaged_entry(setup: Setup, content: bytes) -> None:
    setup.plant(claim_uid(1), content)
    setup.put(record(2))
    assert list(setup.records()) == [claim_uid(2)]
    setup.put(record(1))
    assert setup.records() == {claim_uid(1): record(1), claim_uid(2): record(2)}
