"""What tests on real clusters say of a node's journal, which would be green without a judge."""

from typing import Any

import pytest

from tests.cluster.life_node import given_twice

MEMORY_MIB = {"GPU-0": 1000}


def record(name: str, **changes: Any) -> dict[str, Any]:
    """A prepared share of 10 % and 100 MiB; ``changes`` are of its use, and ``boot`` is its boot's."""
    boot = changes.pop("boot", "now")
    use = {
        "gpu": "GPU-0",
        "use": "Shared",
        "shareId": name,
        "computePercent": 10,
        "memoryMib": 100,
        **changes,
    }
    return {"bootId": boot, "claim": {"name": name}, "uses": [use]}


def whole(name: str, **changes: Any) -> dict[str, Any]:
    return record(name, use="Exclusive", shareId=None, **changes)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([record("a"), whole("b")], "GPU-0 is held by a and b"),
        ([whole("a"), whole("b")], "GPU-0 is held by a and b"),
        ([record("a"), record("b", shareId="a")], "GPU-0 is held by a and b"),
        (
            [record("a", computePercent=60), record("b", computePercent=41)],
            "GPU-0 is held to 101 %: [60, 41]",
        ),
        (
            [record("a", memoryMib=600), record("b", memoryMib=401)],
            "GPU-0 is held to 1001 MiB of 1000: [600, 401]",
        ),
    ],
)
def test_given_twice_names_what_is_held_when_only_one_may_hold_it(
    records: list[dict[str, Any]], complaint: str
) -> None:
    assert list(given_twice(records, MEMORY_MIB)) == [complaint]


@pytest.mark.parametrize(
    "records",
    [
        [record(str(number)) for number in range(10)],
        [whole("a"), whole("b", gpu="GPU-1")],
        [whole("a"), whole("b", boot="before")],
        [whole("a"), record("b", use="Monitor", shareId=None)],
        [record("a", gpu="GPU-unknown", memoryMib=10_000)],
    ],
)
def test_given_twice_says_nothing_when_each_holds_its_own(records: list[dict[str, Any]]) -> None:
    assert list(given_twice(records, MEMORY_MIB)) == []
