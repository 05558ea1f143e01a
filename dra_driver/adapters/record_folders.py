"""Where the journal's entries lie.

One that outlives its boot is on a disk, `<state-dir>/claims`. An intent does not: it holds nothing
in the next boot, so it lies in memory, in the run folder, `<run-dir>/intents`: on some disks a new
file takes as long as all the rest of a claim. Older releases wrote intents beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from dra_driver.adapters.durable import DurableFolder
from dra_driver.errors import AdapterError
from dra_driver.model.record import Record, RecordState

_ENDING = ".json"


class RecordFolders:
    """Both folders; of a claim with an entry in each, that on the disk counts.

    It is the later one, or is of another boot and replaced before the other has any effect.
    """

    def __init__(self, state_dir: Path, run_dir: Path) -> None:
        # Records name namespaces and claims: they are nobody else's to read.
        self.lasting = DurableFolder(state_dir / "claims", setting="--state-dir", mode=0o600)
        self.passing = DurableFolder(run_dir / "intents", setting="--run-dir", mode=0o600)

    def of(self, record: Record) -> DurableFolder:
        return self.lasting if outlives_boot(record) else self.passing

    def entries(self) -> Mapping[str, DurableFolder]:
        """Where to read each claim's entry, by UID. Raises AdapterError."""
        passing = dict.fromkeys(_uids(self.passing), self.passing)
        return passing | dict.fromkeys(_uids(self.lasting), self.lasting)

    def remove_other(self, before: Record, now: Record) -> None:
        """Remove an entry that another one has replaced, in the other folder.

        Raises:
            AdapterError: what counts before the new one cannot be removed.
        """
        if not outlives_boot(now):
            self.lasting.unlink(file_of(now.claim.uid))
        elif not outlives_boot(before):
            self.tidy(now.claim.uid)

    def tidy(self, uid: str) -> None:
        """Remove an intent that counts no more; it goes with the claim at the latest."""
        with suppress(AdapterError):
            self._remove_intent(uid)

    def remove(self, uid: str) -> None:
        """Remove a claim's entry; first the one that would count without the other.

        Raises:
            AdapterError: it stands still.
        """
        self._remove_intent(uid)
        self.lasting.unlink(file_of(uid))

    def sweep(self) -> None:
        """Remove what dead writers left. Raises AdapterError."""
        self.lasting.sweep()
        self.passing.sweep()

    def _remove_intent(self, uid: str) -> None:
        name = file_of(uid)
        # Even to remove nothing a file system must be writable.
        if self.passing.has(name):
            self.passing.unlink(name)


def file_of(uid: str) -> str:
    return f"{uid}{_ENDING}"


def outlives_boot(record: Record) -> bool:
    """Whether a record has to; effects of an intent that do are found by their names."""
    return record.state is not RecordState.RESERVED


def _uids(folder: DurableFolder) -> set[str]:
    return {
        name.removesuffix(_ENDING)
        for name in folder.names()
        if name.endswith(_ENDING) and not name.startswith(".")
    }
