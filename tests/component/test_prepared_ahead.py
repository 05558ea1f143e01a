"""What a prepare writes out while another process enforces its shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.errors import AdapterError, ClaimError
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.record import Record, RecordState
from dra_driver.model.share import GpuShare
from dra_driver.state import codec
from tests.builders import claim_uid, ref
from tests.component.node_folder import FileSupervisor, NodeFolder, soon


class WatchedSupervisor(FileSupervisor):
    """Calls `look` when it begins and when it is waited for; `broken`: an error to raise then."""

    def __init__(self, path: Path, look: Callable[[], None]) -> None:
        super().__init__(path)
        self._look = look
        self.broken: AdapterError | None = None

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        self._look()
        apply = super().begin(gpu, shares, deadline)

        def wait() -> None:
            self._look()
            if self.broken is not None:
                raise self.broken
            apply()

        return wait


class Seen:
    """What stood in the journal's folders when shares began to be enforced, and when they were.

    Attributes:
        entered: states of their entries, each time.
        written_out: the same of records beside their places.
    """

    def __init__(self, root: Path) -> None:
        self._folders = root / "state/claims", root / "run/intents"
        self.entered: list[list[RecordState]] = []
        self.written_out: list[list[RecordState]] = []

    def look(self) -> None:
        self.entered.append(self._states("[!.]*"))
        self.written_out.append(self._states(".*.tmp"))

    def _states(self, pattern: str) -> list[RecordState]:
        paths = (path for folder in self._folders for path in folder.glob(pattern))
        return [_record(path).state for path in paths]


def _record(path: Path) -> Record:
    decoded = codec.decode(path.read_bytes())
    assert isinstance(decoded, Record)
    return decoded


def test_prepare_writes_the_record_out_while_shares_are_enforced_and_enters_it_after(
    tmp_path: Path,
) -> None:
    seen = Seen(tmp_path)
    node = NodeFolder(tmp_path, supervisor=WatchedSupervisor(tmp_path / "shares", seen.look))
    node.state.prepare(ref(1), soon())
    assert seen.entered == [[RecordState.RESERVED]] * 2
    assert seen.written_out == [[], [RecordState.PREPARED]]
    assert [record.claim.uid for record in node.state.records()] == [claim_uid(1)]
    assert node.leftovers() == []
    node.check()


def test_prepare_leaves_nothing_of_what_it_wrote_out_when_shares_cannot_be_enforced(
    tmp_path: Path,
) -> None:
    seen = Seen(tmp_path)
    supervisor = WatchedSupervisor(tmp_path / "shares", seen.look)
    node = NodeFolder(tmp_path, supervisor=supervisor)
    supervisor.broken = AdapterError("MPS is not there")
    with pytest.raises(ClaimError, match="MPS is not there"):
        node.state.prepare(ref(1), soon())
    assert seen.written_out[1] == [RecordState.PREPARED]
    assert node.leftovers() == []
    node.check()
    assert node.state.records() == ()
