"""The simulated API server for clients that ask first what there is, as kubectl does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, dynamic

from dra_driver.sim.api_profiles import V1_37
from dra_driver.sim.api_resources import RESOURCES, Resource
from dra_driver.sim.api_server import SimApiServer


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.plural)
def test_every_kind_is_found_and_listed(tmp_path: Path, resource: Resource) -> None:
    connect: Any = dynamic.DynamicClient
    with SimApiServer(V1_37) as api:
        connection = client.ApiClient(client.Configuration(host=api.url))
        api_client = connect(connection, cache_file=str(tmp_path / "cache"))
        found = api_client.resources.get(api_version=resource.api_version, kind=resource.kind)
        assert (found.name, found.namespaced) == (resource.plural, resource.namespaced)
        assert found.get().items == []
