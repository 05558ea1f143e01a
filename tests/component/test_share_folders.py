"""Folders of shares, with a socket that nobody listens on."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.adapters.share_folders import RunFolders
from dra_driver.errors import AdapterError, MpsGone
from dra_driver.model.share import Expose
from tests.builders import uuid

GPU = uuid(0)


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def folders(tmp_path: Path) -> RunFolders:
    folders = RunFolders(tmp_path)
    _daemon(folders)
    return folders


def _daemon(folders: RunFolders, number: int = 0) -> None:
    """What a daemon that starts does."""
    pipe = folders.pipe(uuid(number))
    pipe.mkdir(parents=True, exist_ok=True)
    (pipe / "control").unlink(missing_ok=True)
    os.mknod(pipe / "control", stat.S_IFSOCK | 0o666)


def test_folder_of_a_share_is_open_to_all_whatever_the_umask(
    folders: RunFolders, tmp_path: Path
) -> None:
    folders.expose(GPU, "a", Expose.CONTROL)
    for path in (tmp_path / "shares", tmp_path / "shares/a"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o755


def test_share_of_another_gpu_does_not_count(folders: RunFolders) -> None:
    _daemon(folders, 1)
    folders.expose(GPU, "a", Expose.CONTROL)
    folders.expose(uuid(1), "b", Expose.CONTROL)
    assert folders.exposed(GPU) == {"a"}
    assert folders.exposed(uuid(1)) == {"b"}
    assert folders.known() == {"a", "b"}


def test_link_is_replaced_in_the_folder_that_containers_have_mounted(
    folders: RunFolders, tmp_path: Path
) -> None:
    folders.expose(GPU, "a", Expose.CONTROL)
    folder = (tmp_path / "shares/a").stat().st_ino
    _daemon(folders)
    folders.expose(GPU, "a", Expose.CONTROL)
    assert (tmp_path / "shares/a").stat().st_ino == folder
    assert (tmp_path / "shares/a/control").samefile(folders.pipe(GPU) / "control")


def test_whole_folder_has_no_folder_of_its_own(folders: RunFolders, tmp_path: Path) -> None:
    folders.expose(GPU, "a", Expose.CONTROL)
    folders.expose(GPU, "a", Expose.FOLDER)
    assert folders.known() == folders.exposed(GPU) == frozenset()
    (folders.pipe(GPU) / "control").unlink()
    with pytest.raises(MpsGone):
        folders.expose(GPU, "a", Expose.FOLDER)


def test_what_a_dead_writer_left_is_swept(folders: RunFolders, tmp_path: Path) -> None:
    folders.expose(GPU, "a", Expose.CONTROL)
    (tmp_path / "shares/a/.control.tmp").touch()
    (tmp_path / "shares/b").mkdir()
    assert folders.known() == {"a", "b"}
    assert [each.name for each in (tmp_path / "shares/a").iterdir()] == ["control"]
    (tmp_path / "shares/b/.control.tmp").touch()
    folders.expose(GPU, "b", Expose.CONTROL)
    assert [each.name for each in (tmp_path / "shares/b").iterdir()] == ["control"]
    folders.hide("b")
    assert folders.known() == {"a"}


@pytest.mark.parametrize("share", ["", ".", "..", "a/b", "../x", ".hidden"])
def test_id_that_is_no_name_of_a_folder_is_refused(
    folders: RunFolders, tmp_path: Path, share: str
) -> None:
    with pytest.raises(AdapterError, match="no id of a share"):
        folders.hide(share)
    with pytest.raises(AdapterError, match="no id of a share"):
        folders.expose(GPU, share, Expose.CONTROL)
    assert not (tmp_path / "shares").exists()
