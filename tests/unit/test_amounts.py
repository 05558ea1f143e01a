from __future__ import annotations

import pytest

from dra_driver.plan.amounts import slot_memory_mib, usable_memory_mib
from tests import builders


@pytest.mark.parametrize(
    ("total_mib", "reserved_mib", "usable_mib"),
    [
        (81559, 638, 81559 - 638 - 64 - 815 - 1),  # 1 % is 815.59 MiB
        (15360, 450, 15360 - 450 - 64 - 153 - 1),  # 1 % is 153.6 MiB
        (8192, 0, 8192 - 64 - 128),  # the margin's floor
        (100, 0, 0),
    ],
)
def test_usable_memory_leaves_room_for_driver_server_and_margin(
    total_mib: int, reserved_mib: int, usable_mib: int
) -> None:
    gpu = builders.gpu(memory_total_bytes=total_mib << 20, memory_reserved_bytes=reserved_mib << 20)
    assert usable_memory_mib(gpu) == usable_mib


def test_usable_memory_is_unknown_when_the_board_does_not_say() -> None:
    assert usable_memory_mib(builders.gpu(memory_total_bytes=None)) is None


def test_twenty_jobs_of_4_gb_fit_an_80_gb_board() -> None:
    job_mib = -(-4 * 10**9 // (1 << 20))
    usable = usable_memory_mib(builders.gpu())
    assert usable is not None
    assert 20 * job_mib <= usable


@pytest.mark.parametrize("percent", [10, 25, 50, 100])
def test_slots_of_one_size_never_exceed_the_board(percent: int) -> None:
    assert (100 // percent) * slot_memory_mib(80041, percent) <= 80041
