"""What a node can do with CUDA state, judged by the files on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.adapters.cuda_tool import CudaTools
from dra_driver.adapters.driver_programs import DriverPrograms
from dra_driver.model.cuda import CheckpointAbility
from tests.fakes.cuda_processes import CudaSimulation, build_library, build_program

PLUGIN = "usr/lib/criu/cuda_plugin.so"
TOOL = "usr/bin/cuda-checkpoint"
REFUSING = "#!/bin/sh\necho 'no CUDA here' >&2\nexit 2\n"


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> CudaSimulation:
    return CudaSimulation(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, simulation: CudaSimulation) -> Path:
    path = tmp_path_factory.mktemp("program") / "cuda-checkpoint"
    build_program(path, simulation.state)
    return path


@pytest.fixture(autouse=True)
def _clean(simulation: CudaSimulation) -> None:
    simulation.clear()


@pytest.fixture
def host(tmp_path: Path, program: Path) -> Path:
    """A host that has all."""
    root = tmp_path / "host"
    _touch(root / PLUGIN)
    (root / TOOL).parent.mkdir(parents=True)
    (root / TOOL).symlink_to(program)
    return root


def test_node_can_do_all_when_driver_plugin_and_tool_are_there(
    simulation: CudaSimulation, host: Path
) -> None:
    ability = _ability(simulation.driver_root, host)
    assert ability == CheckpointAbility()
    assert (ability.driver, ability.migration, ability.plugin) == (True, True, True)
    assert simulation.calls() == ()  # no GPU was asked


def test_gpus_cannot_be_exchanged_when_the_driver_is_below_580(
    simulation: CudaSimulation, host: Path
) -> None:
    (simulation.state / "version").write_text("12080")
    ability = _ability(simulation.driver_root, host)
    assert (ability.driver, ability.migration) == (True, False)
    assert "580 or newer, and this one runs CUDA 12.8" in ability.no_migration


def test_driver_cannot_when_it_is_below_570(
    simulation: CudaSimulation, host: Path, tmp_path: Path
) -> None:
    driver = tmp_path / "driver"
    library = driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    build_library(library, simulation.state, old=True)
    ability = _ability(driver, host)
    assert (ability.driver, ability.migration, ability.plugin) == (False, False, True)
    assert "from NVIDIA driver 570 on" in ability.no_driver


def test_node_without_anything_can_do_nothing(tmp_path: Path) -> None:
    ability = _ability(tmp_path / "driver", tmp_path / "host")
    assert "no libcuda.so.1" in ability.no_driver
    assert ability.no_migration == ability.no_driver
    assert "no cuda_plugin.so in /usr/lib/criu or /usr/local/lib/criu" in ability.no_plugin


def _without_tool(host: Path) -> None:
    (host / TOOL).unlink()


def _with_refusing_tool(host: Path) -> None:
    (host / TOOL).unlink()
    _script(host / TOOL, REFUSING)


def _with_old_tool(host: Path) -> None:
    (host / TOOL).unlink()
    _script(host / TOOL, "#!/bin/sh\necho '--toggle --pid <pid>'\n")


def _with_rubbish_for_a_tool(host: Path) -> None:
    (host / TOOL).unlink()
    _script(host / TOOL, "\0\0\0\0")


def _with_plugins_elsewhere(host: Path) -> None:
    _touch(host / "etc/criu/default.conf").write_text("libdir /opt/a # mine\n")
    _touch(host / "etc/criu/runc.conf").write_text("tcp-close\nlibdir=/opt/b\n")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_without_tool, "no cuda-checkpoint on the host's PATH"),
        (_with_refusing_tool, "ends with status 2: no CUDA here"),
        (_with_old_tool, "knows no --action: take the one of NVIDIA driver 555"),
        (_with_rubbish_for_a_tool, "cannot start cuda-checkpoint"),
        (_with_plugins_elsewhere, "CRIU has no cuda_plugin.so in /opt/b"),
    ],
)
def test_criu_leaves_cuda_alone_when(
    simulation: CudaSimulation, host: Path, change: Callable[[Path], None], text: str
) -> None:
    change(host)
    ability = _ability(simulation.driver_root, host)
    assert not ability.plugin
    assert text in ability.no_plugin
    assert ability.driver


def test_plugin_is_found_where_the_configuration_of_criu_says(
    simulation: CudaSimulation, host: Path
) -> None:
    (host / PLUGIN).unlink()
    _touch(host / "etc/criu/runc.conf").write_text("tcp-close\n")
    _touch(host / "etc/criu/default.conf").write_text('  libdir "/opt/a" # mine\n')
    _touch(host / "opt/a/cuda_plugin.so")
    assert _ability(simulation.driver_root, host).plugin


def test_tool_that_is_named_is_the_one_that_counts(
    simulation: CudaSimulation, host: Path, tmp_path: Path
) -> None:
    _script(tmp_path / "named", REFUSING)
    ability = _ability(simulation.driver_root, host, tool=tmp_path / "named")
    assert "named -h ends with status 2" in ability.no_plugin


def _ability(driver_root: Path, host: Path, *, tool: Path | None = None) -> CheckpointAbility:
    programs = DriverPrograms(driver_root=driver_root, run_dir=host.parent / "run")
    return CudaTools(programs, host_root=host, tool=tool).ability()


def _script(path: Path, text: str) -> None:
    _touch(path).write_text(text)
    path.chmod(0o755)


def _touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path
