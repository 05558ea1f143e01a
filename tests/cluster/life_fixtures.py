"""Fixtures of the tests in which parts of a cluster come and go."""

import itertools
from collections.abc import Iterator

import pytest

from tests.cluster.life_site import Site, site_on
from tests.kube.cluster import Cluster

_numbers = itertools.count(1)


@pytest.fixture
def site(deployed_gates: Cluster) -> Iterator[Site]:
    """A new namespace, of whose pods nothing may be left on the node after the test.

    Tests bring back what they end, so that others can use the same cluster.
    """
    with site_on(deployed_gates, f"life-{next(_numbers)}") as site:
        yield site
