from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dra_driver.app.folders import check_folders
from dra_driver.errors import FatalError
from dra_driver.settings import Settings


def _settings(root: Path) -> Settings:
    return Settings(state_dir=root / "state", cdi_root=root / "cdi", run_dir=root / "run")


def test_check_makes_folders_and_leaves_nothing_in_them(tmp_path: Path) -> None:
    check_folders(_settings(tmp_path))
    made = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert made == ["cdi", "run", "run/claims", "state"]


def test_check_refuses_a_run_folder_when_marks_of_claims_cannot_be_in_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/claims").write_text("somebody else's")
    with pytest.raises(FatalError, match=r"^cannot start: cannot make claims in .*--run-dir"):
        check_folders(_settings(tmp_path))


@pytest.mark.root
def test_check_goes_on_when_a_folder_is_full(tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "full", str(folder)]
    subprocess.run(mount, check=True)
    try:
        with pytest.raises(OSError, match="No space left"):
            (folder / "one").touch()
        check_folders(_settings(tmp_path))
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_check_refuses_a_folder_when_it_is_mounted_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "cdi"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "fixed", str(folder)], check=True)
    try:
        with pytest.raises(FatalError, match=r"--cdi-root.*mount it read-write"):
            check_folders(_settings(tmp_path))
    finally:
        subprocess.run(["umount", str(folder)], check=True)
