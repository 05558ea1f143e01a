"""The publisher on servers of several versions, and what others do to its slices."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from dra_driver.plan.reconcile import dropped_fields
from dra_driver.plan.slice_json import slice_specs
from dra_driver.plan.slices import PublishMode
from dra_driver.sim.api_faults import Fault
from dra_driver.sim.api_profiles import V1_34, V1_34_GATES, V1_37
from dra_driver.sim.api_server import SimApiServer
from tests import builders
from tests.component.publishing import Running, node, wait_until
from tests.component.publishing_server import (
    SLICES,
    devices,
    kubeconfig,
    quiet,
    server,
)

__all__ = ["kubeconfig", "server"]


@pytest.mark.parametrize("profile", [V1_34, V1_34_GATES, V1_37], ids=lambda each: each.git_version)
def test_publisher_stores_what_it_sent_when_the_server_is_of_any_version(
    server: SimApiServer, kubeconfig: Path, profile: Any
) -> None:
    server.set_profile(profile)
    started = time.monotonic()
    with Running(kubeconfig=kubeconfig, inventory=node(2)) as running:
        running.wait_published()
        assert time.monotonic() - started < 1.5
        assert running.state.pool is not None
        (sent,) = slice_specs(running.state.pool)
        (stored,) = server.list(SLICES)
        assert dropped_fields(sent, stored["spec"]) == ()
        quiet(server)
        assert running.stop() < 2.0
    assert server.writes() == {("create", SLICES): 1}


def test_publisher_writes_nothing_when_it_restarts_and_nothing_changed(
    server: SimApiServer, kubeconfig: Path
) -> None:
    for _ in range(5):
        with Running(kubeconfig=kubeconfig, inventory=node(70)) as running:
            running.wait_published()
            for count in (70, 70):
                running.set(builders.inventory(*reversed(node(count).gpus)))
            running.publisher.kick()
            quiet(server, for_s=0.3)
    assert server.writes() == {("create", SLICES): 3}


def test_publisher_waits_when_gpus_have_not_been_read(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=None) as running:
        wait_until(lambda: "have not been read" in running.state.problem)
        assert not running.state.published
        assert server.list(SLICES) == ()
        running.set(node(1))
        running.wait_published()
    assert len(devices(server)) == 2


def test_publisher_creates_slices_again_when_a_kubelet_wipes_them(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=node(70)) as running:
        running.wait_published()
        for wiped in range(3):
            for each in server.list(SLICES):
                server.delete(SLICES, each["metadata"]["name"])
            started = time.monotonic()
            wait_until(lambda: len(server.list(SLICES)) == 3)
            assert time.monotonic() - started < 2.0, wiped
            wait_until(lambda: len(devices(server)) == 140)
        quiet(server)


def test_publisher_undoes_changes_when_others_edit_its_slices(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        (stored,) = server.list(SLICES)
        stored["spec"]["devices"].pop()
        server.replace(SLICES, stored)
        wait_until(lambda: len(devices(server)) == 2)


def test_publisher_changes_mode_when_the_server_is_upgraded(
    server: SimApiServer, kubeconfig: Path
) -> None:
    server.set_profile(V1_34)
    with Running(kubeconfig=kubeconfig, inventory=node(2)) as running:
        running.wait_published()
        assert len(devices(server)) == 4
        # The same version, restarted with other gates: only the broken watch tells.
        server.stop()
        server.set_profile(V1_34_GATES)
        server.start()
        wait_until(lambda: len(devices(server)) == 36)
        server.set_profile(V1_37)
        wait_until(lambda: len(devices(server)) == 4)
        assert devices(server)[0]["allowMultipleAllocations"]
        quiet(server)


def test_publisher_does_without_fields_when_the_server_drops_what_it_had_kept(
    server: SimApiServer, kubeconfig: Path
) -> None:
    server.faults.add(Fault(verb="create", resource=SLICES, gates=frozenset()))
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        assert running.state.capability is not None
        assert not running.state.capability.consumable
        assert running.state.capability.taints
        assert "allowMultipleAllocations" not in devices(server)[0]
        assert running.recorder.counted("publish_failures_total", kind="dropped") == 1
        quiet(server)


def test_publisher_names_the_node_when_it_does_not_exist(
    server: SimApiServer, kubeconfig: Path
) -> None:
    server.delete("nodes", builders.NODE)
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        wait_until(lambda: "no Node node-a" in running.state.problem)
        assert server.list(SLICES) == ()
        server.create_node(builders.NODE)
        running.wait_published()


def test_publisher_replaces_owners_when_the_node_is_created_again(
    server: SimApiServer, kubeconfig: Path
) -> None:
    with Running(kubeconfig=kubeconfig, inventory=node(1)) as running:
        running.wait_published()
        server.delete("nodes", builders.NODE)
        uid = server.create_node(builders.NODE)["metadata"]["uid"]
        wait_until(lambda: server.list(SLICES)[0]["metadata"]["ownerReferences"][0]["uid"] == uid)
        server.collect_garbage()
        assert len(server.list(SLICES)) == 1
        server.delete("nodes", builders.NODE)
        server.collect_garbage()
        uid = server.create_node(builders.NODE)["metadata"]["uid"]
        wait_until(lambda: server.list(SLICES))
        assert server.list(SLICES)[0]["metadata"]["ownerReferences"][0]["uid"] == uid


def test_publisher_leaves_nothing_stale_when_the_mode_changes(
    server: SimApiServer, kubeconfig: Path
) -> None:
    foreign = {
        "metadata": {"name": "foreign"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": builders.NODE,
            "pool": {"name": builders.NODE, "generation": 1, "resourceSliceCount": 1},
        },
    }
    before = server.create(SLICES, foreign)
    for mode, count in ((PublishMode.STATIC, 10), (PublishMode.AUTO, 4)):
        with Running(kubeconfig=kubeconfig, inventory=node(2), mode=mode, layout="4x25") as running:
            running.wait_published()
            assert len(devices(server)) == count
    assert server.get(SLICES, "foreign") == before
