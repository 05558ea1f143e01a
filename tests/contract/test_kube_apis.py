"""The API server contract on the simulated server; tests/api runs it on a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.sim.api_profiles import V1_34, V1_37
from dra_driver.sim.api_server import SimApiServer
from tests.contract.kube_suite import KubeContract, ServerUnderTest, sim_admin


@pytest.fixture(params=[V1_34, V1_37], ids=lambda profile: profile.git_version)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerUnderTest]:
    with SimApiServer(request.param) as sim:
        yield ServerUnderTest(
            kubeconfig=sim.write_kubeconfig(tmp_path / "kubeconfig"), admin=sim_admin(sim.url)
        )


class TestSimApiServer(KubeContract):
    pass
