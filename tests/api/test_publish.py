"""The publisher on a real kube-apiserver, which has the last word on what is valid and kept."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.model.device import Inventory
from dra_driver.plan.reconcile import dropped_fields
from dra_driver.plan.slice_json import slice_specs
from dra_driver.plan.slices import PublishMode
from tests import builders
from tests.component.publishing import Running, node, wait_until
from tests.kube.harness import DEFAULT, GATES, ApiServer
from tests.kube.objects import create_node
from tests.unit.publishing import sick

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_numbers = itertools.count(1)


class Site:
    """A node of one test on a shared server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.name = f"publish-{next(_numbers)}"
        self.uid = create_node(server.admin, self.name)["metadata"]["uid"]

    def running(self, inventory: Inventory, **changes: Any) -> Running:
        return Running(
            kubeconfig=self.server.kubeconfig, inventory=inventory, name=self.name, **changes
        )

    def slices(self) -> tuple[dict[str, Any], ...]:
        selector = f"spec.driver={builders.DRIVER},spec.nodeName={self.name}"
        return self.server.admin.list(SLICES, fieldSelector=selector)

    def devices(self) -> list[Any]:
        return [each for found in self.slices() for each in found["spec"].get("devices") or ()]

    def versions(self) -> list[tuple[str, str]]:
        return [
            (each["metadata"]["name"], each["metadata"]["resourceVersion"])
            for each in self.slices()
        ]

    def wipe(self) -> None:
        """What a kubelet does at its start."""
        self.server.admin.delete(SLICES, fieldSelector=f"spec.nodeName={self.name}")


@pytest.fixture(params=["api_default", "api_gates"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(request.getfixturevalue(request.param))
    yield site
    site.wipe()


INVENTORIES = {
    "none": builders.inventory(),
    "two": node(2),
    "sick": sick(node(2), builders.uuid(1)),
    "many": node(45),
    "too-many-for-pads": sick(node(70), builders.uuid(3)),
    "bare": builders.inventory(
        builders.gpu(0, memory_total_bytes=None, nvlink_domain=None, numa_node=None),
        builders.gpu(1, memory_total_bytes=300 << 20, memory_reserved_bytes=0, pcie_root=None),
        builders.gpu(2, memory_total_bytes=(1 << 38) + 12345, compute_capability=None),
        driver_version="580.65.06",
        cuda_version=None,
    ),
}


@pytest.mark.parametrize("inventory", INVENTORIES.values(), ids=INVENTORIES)
@pytest.mark.parametrize("mode", [PublishMode.AUTO, PublishMode.STATIC])
def test_slices_are_stored_as_sent_when_the_server_validates_them(
    site: Site, inventory: Inventory, mode: PublishMode
) -> None:
    with site.running(inventory, mode=mode, layout="2x25+5x10") as running:
        running.wait_published()
        pool = running.state.pool
        assert pool is not None
        specs = slice_specs(pool)
        stored = site.slices()
        assert len(specs) == len(stored)
        for sent, found in zip(specs, stored, strict=True):
            assert dropped_fields(sent, found["spec"]) == ()
        assert running.recorder.counted("publish_failures_total") == 0


@pytest.mark.parametrize(("profile", "consumable"), [("api_default", False), ("api_gates", True)])
def test_mode_follows_the_gates_when_it_is_auto(
    request: pytest.FixtureRequest, profile: str, *, consumable: bool
) -> None:
    site = Site(request.getfixturevalue(profile))
    with site.running(node(1)) as running:
        running.wait_published()
        assert running.state.capability is not None
        assert running.state.capability.consumable is consumable
        assert running.state.capability.taints is consumable
        assert [each["name"][:3] for each in site.devices()][:1] == ["pad" if consumable else "gpu"]
    site.wipe()


def test_nothing_is_written_when_it_restarts_and_nothing_changed(site: Site) -> None:
    with site.running(node(70)) as running:
        running.wait_published()
    before = site.versions()
    for _ in range(3):
        with site.running(node(70)) as running:
            running.wait_published()
            running.publisher.kick()
            threading.Event().wait(0.5)
            assert running.writes() == 0
    assert site.versions() == before


def test_slices_come_back_when_a_kubelet_wipes_them(site: Site) -> None:
    with site.running(node(70)) as running:
        running.wait_published()
        count = len(site.devices())
        for _ in range(3):
            site.wipe()
            wait_until(lambda: len(site.devices()) == count, timeout_s=5)
        generations = {each["spec"]["pool"]["generation"] for each in site.slices()}
        assert len(generations) == 1


def test_sick_gpu_is_kept_from_new_claims_when_taints_are_kept_or_dropped(site: Site) -> None:
    with site.running(node(2)) as running:
        running.wait_published()
        tainted = running.state.capability is not None and running.state.capability.taints
        name = f"gpu-{str(builders.uuid(1)).removeprefix('GPU-')}"
        running.set(sick(node(2), builders.uuid(1)))

        def offered() -> list[Any]:
            return [each for each in site.devices() if each["name"] == name]

        if not tainted:
            wait_until(lambda: not offered())
            return
        wait_until(lambda: offered()[0].get("taints"))
        (taint,) = offered()[0]["taints"]
        assert taint["effect"] == "NoSchedule"
        running.set(sick(node(3), builders.uuid(1)))
        wait_until(lambda: len(site.devices()) == 32 + 6)
        assert offered()[0]["taints"] == [taint]


def test_owner_is_replaced_when_the_node_is_created_again(site: Site) -> None:
    with site.running(node(1)) as running:
        running.wait_published()
        site.server.admin.delete(f"/api/v1/nodes/{site.name}")
        uid = create_node(site.server.admin, site.name)["metadata"]["uid"]
        assert uid != site.uid

        def owners() -> list[str]:
            found = (each["metadata"]["ownerReferences"] for each in site.slices())
            return [owner["uid"] for each in found for owner in each]

        wait_until(lambda: owners() == [uid])


def test_publishing_survives_when_the_server_restarts_with_other_gates(tmp_path: Path) -> None:
    with ApiServer(tmp_path, DEFAULT) as server:
        site = Site(server)
        with site.running(node(2)) as running:
            running.wait_published()
            assert len(site.devices()) == 4
            server.kill_api()
            wait_until(lambda: running.state.problem, timeout_s=30)
            server.start_api(profile=GATES)
            wait_until(lambda: len(site.devices()) == 36, timeout_s=30)
            running.wait_published()
            site.wipe()
            wait_until(lambda: len(site.devices()) == 36)
