"""The plugin as a process on NVML, which a stub of the driver answers, or does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.builders import gpu
from tests.component.node_rig import NodeRig, node_rig, simulation
from tests.fakes.gpu_node import CallFault, NodeState
from tests.fakes.nvml_stub import StubDriver, compile_stub
from tests.waiting import eventually

GPUS = (gpu(0), gpu(1))


@pytest.fixture
def driver(tmp_path: Path) -> StubDriver:
    driver = StubDriver(tmp_path, compile_stub(tmp_path))
    driver.save(NodeState(gpus=GPUS))
    return driver


def _flags(driver: StubDriver) -> dict[str, str]:
    return {
        "simulate": "",
        "driver_root": str(driver.driver_root),
        "host_root": str(driver.host_root),
        "sharing": "time-slicing",
        "shutdown_grace_seconds": "2",
    }


def _hang(driver: StubDriver) -> None:
    """Let each call of NVML wait for ever: nobody writes into the pipe that it reads."""
    script = next(driver.driver_root.rglob("nvml"))
    pipe = script.with_suffix(".new")
    os.mkfifo(pipe)
    pipe.replace(script)


def test_plugin_ends_when_nvml_hangs_at_its_start(root: Path, driver: StubDriver) -> None:
    _hang(driver)
    with node_rig(root, simulation=simulation()) as rig, rig.plugin(**_flags(driver)) as plugin:
        eventually(lambda: "Serving the kubelet" in plugin.log, 30, "the kubelet is answered")
        assert plugin.stop() == 0
        assert rig.api.writes() == {}
        assert list(rig.kubelet.registry.iterdir()) == []


def test_plugin_ends_when_nvml_hangs_while_it_serves(root: Path, driver: StubDriver) -> None:
    with node_rig(root, simulation=simulation()) as rig, rig.plugin(**_flags(driver)) as plugin:
        rig.wait_ready()
        _hang(driver)
        assert plugin.stop() == 0
        assert list(rig.kubelet.registry.iterdir()) == []


def test_plugin_offers_gpus_once_nvml_finds_those_that_the_kernel_lists(
    root: Path, driver: StubDriver
) -> None:
    away = CallFault(call="enumerate", error="DRIVER_NOT_LOADED")
    none = CallFault(call="enumerate", error="NO_DEVICES")
    driver.save(NodeState(gpus=GPUS, faults=(away,)))
    with node_rig(root, simulation=simulation()) as rig, rig.plugin(**_flags(driver)) as plugin:
        eventually(lambda: "Cannot read the GPUs" in plugin.log, 30, "the driver is missed")
        driver.save(NodeState(gpus=GPUS, faults=(none,)))
        eventually(
            lambda: "finds no GPU although the kernel lists 2" in plugin.log, 30, "it is told"
        )
        assert rig.slices() == (), "a node without GPUs was published"
        driver.save(NodeState(gpus=GPUS))
        rig.wait_ready()
        assert len(rig.gpus()) == len(GPUS)


def test_plugin_says_that_the_run_folder_is_impossible_when_gpus_are_real(
    root: Path, driver: StubDriver
) -> None:
    (root / "occupied").write_text("somebody else's")
    with node_rig(root, simulation=simulation()) as rig:
        _assert_refused(rig, driver, run_dir=str(root / "occupied" / "below"))


def _assert_refused(rig: NodeRig, driver: StubDriver, *, run_dir: str) -> None:
    with rig.plugin(**_flags(driver), run_dir=run_dir) as plugin:
        assert plugin.wait() == 1
    (sentence,) = [line for line in plugin.log.splitlines() if line.startswith("gpuslice: ")]
    assert "--run-dir" in sentence
    assert "occupied" in sentence
    assert "Serving" not in plugin.log
    assert rig.slices() == ()
