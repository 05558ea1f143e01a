"""When a folder is synced: for every change, and not without one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from dra_driver.adapters.durable import DurableFolder
from dra_driver.errors import AdapterError
from tests.waiting import eventually


class Watched(DurableFolder):
    """Counts syncs of the folder; `slow` holds them up, `broken` lets them fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, setting="--state-dir")
        self.syncs = 0
        self.slow = Event()
        self.slow.set()
        self.broken = False

    def _fsync(self) -> None:
        self.syncs += 1
        assert self.slow.wait(10)
        if self.broken:
            raise OSError(5, os.strerror(5))
        super()._fsync()


def test_folder_is_synced_once_for_all_changes_before_and_not_without_any(tmp_path: Path) -> None:
    folder = Watched(tmp_path)
    folder.sync()
    assert folder.syncs == 0
    folder.place("a", b"1")
    folder.place("b", b"2")
    folder.sync()
    folder.sync()
    assert folder.syncs == 1
    assert not folder.unlink("c")
    folder.sync()
    assert folder.syncs == 1
    assert folder.unlink("a")
    folder.sync()
    assert folder.syncs == 2


def test_folder_is_synced_again_when_it_failed(tmp_path: Path) -> None:
    folder = Watched(tmp_path)
    folder.broken = True
    with pytest.raises(AdapterError, match="Input/output error"):
        folder.write("a", b"1")
    folder.broken = False
    folder.sync()
    assert folder.syncs == 2


def test_changes_during_a_sync_wait_for_the_next_which_they_share(tmp_path: Path) -> None:
    folder = Watched(tmp_path)
    folder.slow.clear()
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(folder.write, "first", b"1")
        eventually(lambda: folder.syncs == 1, 10, "the first is being synced")
        later = [pool.submit(folder.write, f"later-{number}", b"1") for number in range(4)]
        eventually(lambda: folder._changes == 5, 10, "the others are in place")
        folder.slow.set()
        for each in (first, *later):
            each.result(10)
    assert folder.syncs == 2


def test_folder_keeps_the_old_content_and_no_leftover_when_a_file_is_not_committed(
    tmp_path: Path,
) -> None:
    folder = Watched(tmp_path)
    folder.write("a", b"old")
    with folder.staged("a", b"new"):
        assert folder.read("a") == b"old"
    assert folder.read("a") == b"old"
    assert folder.names() == ("a",)


def test_folder_tells_why_a_file_is_not_in_place_when_it_cannot_be_removed_either(
    tmp_path: Path,
) -> None:
    folder = Watched(tmp_path / "folder")

    def place_where_no_folder_is_any_more() -> None:
        with folder.staged("a", b"1") as staged:
            folder.path.rename(tmp_path / "away")
            folder.path.touch()
            staged.commit()

    with pytest.raises(AdapterError, match="a file stands where a folder is needed"):
        place_where_no_folder_is_any_more()
