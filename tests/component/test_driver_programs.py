"""Programs and libraries of a driver, below its root."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.errors import AdapterError

LIBRARIES = "usr/lib/x86_64-linux-gnu"


def _program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def _programs(tmp_path: Path, control_path: Path | None = None) -> DriverPrograms:
    return DriverPrograms(
        driver_root=tmp_path / "driver", run_dir=tmp_path / "run", control_path=control_path
    )


def _install(root: Path, version: str) -> None:
    folder = root / LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libcuda.so", "libnvidia-ml.so", "libc.so", "libnvidia"):
        (folder / f"{name}.{version}").touch()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (folder / name).unlink(missing_ok=True)
    (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    # As some drivers' containers have it.
    (folder / "libnvidia-ml.so.1").symlink_to(f"/{LIBRARIES}/libnvidia-ml.so.{version}")


@pytest.mark.parametrize("folder", ["usr/bin", "usr/local/nvidia/bin", "bin"])
def test_control_program_is_looked_for_below_the_root(tmp_path: Path, folder: str) -> None:
    programs = _programs(tmp_path)
    with pytest.raises(AdapterError, match="--mps-control-path"):
        programs.control()
    path = _program(tmp_path / "driver" / folder / "nvidia-cuda-mps-control")
    assert programs.control() == path
    assert programs.environment()["PATH"].split(":")[0] == str(path.parent)


def test_control_program_that_is_named_comes_first(tmp_path: Path) -> None:
    _program(tmp_path / "driver/usr/bin/nvidia-cuda-mps-control")
    own = tmp_path / "own/bin/control"
    programs = _programs(tmp_path, own)
    with pytest.raises(AdapterError, match="is no program"):
        programs.control()
    _program(own)
    (tmp_path / "own/sbin").mkdir()
    assert programs.control() == own
    path = programs.environment()["PATH"].split(":")
    assert path[:2] == [str(tmp_path / "own/bin"), str(tmp_path / "own/sbin")]


def test_libraries_of_the_driver_alone_are_linked(tmp_path: Path) -> None:
    root = tmp_path / "driver"
    _install(root, "550.163.01")
    programs = _programs(tmp_path)
    links = Path(programs.environment()["LD_LIBRARY_PATH"])
    assert {each.name for each in links.iterdir()} == {
        "libcuda.so.1",
        "libcuda.so.550.163.01",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so.550.163.01",
    }
    for each in links.iterdir():
        assert each.resolve().is_relative_to(root), each
        assert each.exists(), each
    assert programs.cuda() == root / LIBRARIES / "libcuda.so.1"


def test_links_follow_an_update_of_the_driver(tmp_path: Path) -> None:
    root = tmp_path / "driver"
    _install(root, "535.261.03")
    programs = _programs(tmp_path)
    programs.environment()
    (root / LIBRARIES / "libcuda.so.535.261.03").unlink()
    (root / LIBRARIES / "libnvidia-ml.so.535.261.03").unlink()
    _install(root, "550.163.01")
    links = Path(programs.environment()["LD_LIBRARY_PATH"])
    assert (links / "libnvidia-ml.so.1").resolve().name == "libnvidia-ml.so.550.163.01"
    assert not (links / "libcuda.so.535.261.03").is_symlink()


def test_nothing_is_linked_without_libraries_or_for_this_systems_own_root(tmp_path: Path) -> None:
    assert "LD_LIBRARY_PATH" not in _programs(tmp_path).environment()
    own = DriverPrograms(driver_root=Path("/"), run_dir=tmp_path / "run")
    assert "LD_LIBRARY_PATH" not in own.environment()
    assert not (tmp_path / "run").exists()
    with pytest.raises(AdapterError, match="libcuda"):
        _programs(tmp_path).cuda()
