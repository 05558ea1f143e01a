"""CDI specs as files: whole or not there, readable by runtimes, others' files untouched."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.adapters.cdi_dir import CdiFolder
from dra_driver.errors import AdapterError
from dra_driver.plan.naming import spec_name, spec_prefix
from tests.builders import DRIVER

NAME = spec_name(DRIVER, "uid-1")


def folder(path: Path) -> CdiFolder:
    return CdiFolder(path, prefix=spec_prefix(DRIVER))


def test_folder_is_made_and_its_specs_are_readable_by_all(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder(tmp_path / "run/cdi").write(NAME, "{}")
    finally:
        os.umask(before)
    (spec,) = (tmp_path / "run/cdi").iterdir()
    assert spec.name == f"{NAME}.json"
    assert spec.stat().st_mode & 0o777 == 0o644


def test_folder_writes_nothing_when_the_spec_stands(tmp_path: Path) -> None:
    folder(tmp_path).write(NAME, "{}")
    before = (tmp_path / f"{NAME}.json").stat()
    folder(tmp_path).write(NAME, "{}")
    assert (tmp_path / f"{NAME}.json").stat() == before


def test_folder_leaves_others_files_alone(tmp_path: Path) -> None:
    others = ["nvidia.yaml", ".nvidia.yaml.tmp", "other.json", f"x{NAME}.json", f"{NAME}.yaml"]
    for name in others:
        (tmp_path / name).write_text("x")
    store = folder(tmp_path)
    store.write(NAME, "{}")
    assert store.names() == (NAME,)
    store.remove(NAME)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_folder_removes_leftovers_only_of_writers_that_died(tmp_path: Path) -> None:
    dead, alive = (tmp_path / f".{NAME}.json.{number}.tmp" for number in "01")
    dead.write_text("{")
    alive.write_text("{")
    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert folder(tmp_path).names() == ()
        assert not dead.exists()
        assert alive.exists()


def test_folder_says_what_to_do_when_it_cannot_be_written() -> None:
    # Nobody can make folders in sysfs, root neither.
    with pytest.raises(AdapterError, match=r"--cdi-root\).*(let the plugin write|read-write)"):
        folder(Path("/sys/gpuslice")).write(NAME, "{}")


def test_folder_keeps_the_old_spec_when_the_disk_is_full(tmp_path: Path) -> None:
    folder(tmp_path).write(NAME, "{}")
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from tests.component.test_cdi_folder import folder, NAME\n"
        "from dra_driver.errors import AdapterError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: folder(Path(sys.argv[1])).write(NAME, 'x' * 1000)\n"
        "except AdapterError as error: print(error)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "(--cdi-root): File too large" in child.stdout
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.json"]
    assert (tmp_path / f"{NAME}.json").read_text() == "{}"
