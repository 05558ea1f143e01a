"""NVLink domains."""

from __future__ import annotations

from dra_driver.model.device import GpuUuid
from dra_driver.plan.topology import nvlink_domains
from tests.builders import uuid

BUSES = {uuid(number): f"0000:{number:02x}:00.0" for number in range(6)}


def links(*peers: tuple[int, set[str]]) -> dict[GpuUuid, frozenset[str]]:
    return {uuid(number): frozenset(ends) for number, ends in peers}


def test_domains_join_gpus_on_the_same_switches() -> None:
    switches = {"0000:ce:00.0", "0000:cf:00.0"}

    domains = nvlink_domains(BUSES, links((0, switches), (1, {"0000:cf:00.0"}), (2, set())))

    assert domains == {uuid(0): "n0", uuid(1): "n0"}


def test_domains_join_gpus_through_other_gpus() -> None:
    chain = links((0, {BUSES[uuid(1)]}), (1, {BUSES[uuid(0)], BUSES[uuid(2)]}), (2, set()))

    # The link of 1 to 2 is down at 2's end only: what one end sees is enough for that end.
    assert nvlink_domains(BUSES, chain) == {uuid(0): "n0", uuid(1): "n0"}


def test_domains_are_numbered_by_their_smallest_uuid_whatever_the_order() -> None:
    pairs = links(
        (3, {BUSES[uuid(2)]}),
        (4, {BUSES[uuid(1)]}),
        (1, {BUSES[uuid(4)]}),
        (2, {BUSES[uuid(3)]}),
    )

    expected = {uuid(1): "n0", uuid(4): "n0", uuid(2): "n1", uuid(3): "n1"}
    assert nvlink_domains(BUSES, pairs) == expected
    assert nvlink_domains(BUSES, dict(reversed(pairs.items()))) == expected
