"""Where the journal's entries lie.

One that outlives its boot is on a disk, `<state-dir>/claims`. An intent does not: it holds nothing
in the next boot, so it lies in memory, in the run folder, `<run-dir>/intents`: on some disks a new
file takes as long as all the rest of a claim. Older releases wrote intents beside the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dra_driver.adapters.durable import DurableFolder
from dra_driver.model.record import Record, RecordState

_ENDING = ".json"


class RecordFolders:
    """Both folders; of a claim with an entry in each, that on the disk is the later one."""

    def __init__(self, state_dir: Path, run_dir: Path) -> None:
        # Records name namespaces and claims: they are nobody else's to read.
        self.lasting = DurableFolder(state_dir / "claims", setting="--state-dir", mode=0o600)
        self.passing = DurableFolder(run_dir / "intents", setting="--run-dir", mode=0o600)

    def of(self, record: Record) -> DurableFolder:
        return self.lasting if outlives_boot(record) else self.passing

    def entries(self) -> Mapping[str, DurableFolder]:
        """Where to read each claim's entry, by UID; what is left of earlier ones is removed.

        Raises:
            AdapterError: a folder cannot be listed or changed.
        """
        passing, lasting = _uids(self.passing), _uids(self.lasting)
        for uid in passing & lasting:
            # A process was killed before it did.
            self.passing.unlink(file_of(uid))
        return dict.fromkeys(passing, self.passing) | dict.fromkeys(lasting, self.lasting)

    def remove_other(self, before: Record, now: Record) -> None:
        """Remove an entry that another one has replaced, in the other folder."""
        if outlives_boot(before) and outlives_boot(now):
            return
        other = self.passing if outlives_boot(now) else self.lasting
        other.unlink(file_of(now.claim.uid))

    def remove(self, uid: str, record: Record | None) -> None:
        """Remove a claim's entry, of which `record` is known."""
        self.lasting.unlink(file_of(uid))
        if record is None or not outlives_boot(record):
            self.passing.unlink(file_of(uid))

    def sweep(self) -> None:
        """Remove what dead writers left. Raises AdapterError."""
        self.lasting.sweep()
        self.passing.sweep()


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
