"""What is concluded from dry runs."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.plan.probe import Feature, capability_from, probe_body, server_version
from dra_driver.sim.api_profiles import CONSUMABLE, TAINTS, V1_34, V1_34_GATES, V1_37, ApiProfile
from dra_driver.sim.api_server import SimApiServer
from tests import builders

ONLY_CONSUMABLE = ApiProfile(minor=35, patch=1, gates=frozenset({CONSUMABLE}))
ONLY_TAINTS = ApiProfile(minor=36, patch=0, gates=frozenset({TAINTS}))


def answers(profile: ApiProfile) -> dict[Feature, Any]:
    server = SimApiServer(profile)
    bodies = {
        each: probe_body(each, driver=builders.DRIVER, node=builders.NODE) for each in Feature
    }
    return {each: server.create("resourceslices", body) for each, body in bodies.items()}


@pytest.mark.parametrize(
    ("profile", "consumable", "taints", "pads"),
    [
        (V1_34, False, False, False),
        (V1_34_GATES, True, True, True),
        (ONLY_CONSUMABLE, True, False, False),
        (ONLY_TAINTS, False, True, False),
        (V1_37, True, True, False),
    ],
)
def test_capability_from_says_what_is_kept_when_gates_differ(
    profile: ApiProfile, *, consumable: bool, taints: bool, pads: bool
) -> None:
    found = capability_from(profile.version(), answers(profile))
    assert (found.consumable, found.taints, found.needs_pads) == (consumable, taints, pads)
    assert (found.major, found.minor) == (1, profile.minor)
    assert found.git_version == profile.git_version


def test_capability_from_takes_features_as_off_when_the_server_refuses() -> None:
    found = capability_from(V1_37.version(), dict.fromkeys(Feature, None))
    assert not found.consumable
    assert not found.taints
    assert not capability_from(V1_37.version(), {}).consumable


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"gitVersion": "v1.34.4-eks-1234"}, (1, 34)),
        ({"gitVersion": "1.36.0+k3s1"}, (1, 36)),
        ({"gitVersion": "weird", "major": "1", "minor": "34+"}, (1, 34)),
        ({"gitVersion": "weird"}, (0, 0)),
        ({}, (0, 0)),
    ],
)
def test_server_version_reads_numbers_when_vendors_add_to_them(
    body: dict[str, str], expected: tuple[int, int]
) -> None:
    assert server_version(body) == expected
