"""Ready boards and nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.adapters.profiles import ALIASES, BOARDS, board, node_profiles, resolve_simulate
from dra_driver.adapters.simulated import SimulatedGpus
from dra_driver.adapters.simulated_file import SimulationFile
from dra_driver.adapters.sysfs import Sysfs
from dra_driver.errors import SettingsError
from dra_driver.model.device import Inventory, Tier
from dra_driver.model.quantity import MIB
from dra_driver.plan.amounts import usable_memory_mib
from dra_driver.plan.tiers import share_abilities


def read(name: str, node_name: str = "node-a") -> Inventory:
    file = SimulationFile(resolve_simulate(name), node_name=node_name)
    return SimulatedGpus(file, sysfs=Sysfs(Path("/"))).inventory()


@pytest.mark.parametrize(
    ("name", "gpus", "product"),
    [
        ("8xh100-80gb", 8, "NVIDIA H100 80GB HBM3"),
        ("8xa100-40gb", 8, "NVIDIA A100-SXM4-40GB"),
        ("4xl40s", 4, "NVIDIA L40S"),
        ("2xt4", 2, "Tesla T4"),
        ("mixed", 5, "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_ready_node_has_its_boards(name: str, gpus: int, product: str) -> None:
    inventory = read(name)

    assert len(inventory.gpus) == gpus
    assert inventory.gpus[0].product_name == product
    assert inventory.unreadable == ()
    assert inventory.simulated


def test_ready_nodes_are_all_tried_here() -> None:
    assert node_profiles() == ("2xt4", "4xl40s", "8xa100-40gb", "8xh100-80gb", "mixed", "none")
    assert read("none").gpus == ()


@pytest.mark.parametrize("name", ["8xh100-80gb", "8xa100-40gb"])
def test_nvswitch_nodes_are_one_domain_over_several_numa_nodes(name: str) -> None:
    gpus = read(name).gpus

    assert {gpu.nvlink_domain for gpu in gpus} == {"n0"}
    assert len({gpu.numa_node for gpu in gpus}) > 1
    assert all(gpu.pcie_root for gpu in gpus)


def test_ready_node_gives_uuids_that_are_the_nodes_own_and_stay() -> None:
    first = {gpu.uuid for gpu in read("8xh100-80gb", "node-a").gpus}

    assert len(first) == 8
    assert first == {gpu.uuid for gpu in read("8xh100-80gb", "node-a").gpus}
    assert first.isdisjoint(gpu.uuid for gpu in read("8xh100-80gb", "node-b").gpus)


def test_mixed_node_offers_one_board_that_cannot_be_shared() -> None:
    tiers = [each.tier for each in share_abilities(read("mixed"), burst_allowed=True)]

    assert tiers == [*[Tier.STANDARD] * 4, None]


@pytest.mark.parametrize("name", [*BOARDS, *ALIASES])
def test_board_totals_are_those_of_real_boards(name: str) -> None:
    model = board(name)

    assert model is not None
    assert model.total_bytes % MIB == 0
    assert 256 * MIB < model.reserved_bytes < model.total_bytes // 20


def test_h100_gives_less_than_its_80_gb() -> None:
    (gpu, *_) = read("8xh100-80gb").gpus

    assert gpu.memory_total_bytes == 81559 * MIB
    assert usable_memory_mib(gpu) == 81559 - 516 - 64 - 816


def test_resolve_simulate_takes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("gpus: []")

    assert resolve_simulate(str(path)) == path


def test_resolve_simulate_names_what_there_is_when_it_is_neither(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="8xh100-80gb") as caught:
        resolve_simulate(str(tmp_path / "9xh100"))

    assert "9xh100" in str(caught.value)
