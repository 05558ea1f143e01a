"""What becomes of pods while the API server is away, and under a newer control plane."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import deployed
from tests.cluster.life_node import Holdings, wait_until_settled
from tests.cluster.life_plugin import plugin_container, registrations, renew_plugin
from tests.cluster.life_processes import kill
from tests.cluster.life_site import WHOLE, Site, part, site_on
from tests.kube.build import KUBERNETES_VERSION
from tests.kube.cluster import CONTROLLERS, Cluster
from tests.kube.cluster_fixtures import NEWEST_VERSION
from tests.kube.process import wait_until
from tests.kube.profiles import GATES

_UNTIL_TOLD = "trap '' TERM; while [ ! -e /life/end ]; do sleep 0.2; done"

# Longer than leases last (40 s) and than a node may stay silent (50 s).
_OUTAGE_S = 60.0


@pytest.mark.timeout(240, func_only=True)
def test_node_lets_go_of_pods_that_end_while_the_api_server_is_away(site: Site) -> None:
    cluster = site.cluster
    renew_plugin(cluster)
    command = ("sh", "-c", _UNTIL_TOLD)
    site.create("kept", part(25, "6Gi"))
    for name in ("ends", "deleted"):
        site.create(name, WHOLE, command=command, terminationGracePeriodSeconds=60)
    kept, *_ = [site.started(name) for name in ("kept", "ends", "deleted")]
    devices, plugin = deployed.published(cluster), plugin_container(cluster)
    plugin_uid = deployed.plugin_pod(cluster)["metadata"]["uid"]
    registered = registrations(cluster, plugin_uid)
    uid = site.claim_of("kept")["metadata"]["uid"]
    site.delete("deleted")
    with api_away(cluster):
        # It starts without an API server, too.
        kill(cluster, plugin)
        wait_until(
            lambda: "" if registrations(cluster, plugin_uid) > registered else "not yet",
            waiting_for="the kubelet to register the plugin again",
        )
        (site.folder / "end").touch()
        wait_until(
            lambda: str(Holdings.of(cluster).claims - {uid} or ""),
            waiting_for="the node to let go of the claims of pods that ended",
        )
        assert Holdings.of(cluster).claims == {uid}
    site.wait_gone("deleted")
    wait_until(
        lambda: "" if (phase := site.phase("ends")) == "Succeeded" else phase,
        waiting_for="the API server to learn of the end of a pod",
    )
    site.start("new", WHOLE)
    site.unchanged(kept)
    assert deployed.published(cluster) == devices
    wait_until_settled(cluster)


@pytest.mark.timeout(240, func_only=True)
def test_pods_stay_and_pads_go_when_the_control_plane_becomes_newer(
    clusters_built: None, cluster_folder: Path, driver_image: Path
) -> None:
    with Cluster(cluster_folder, version=KUBERNETES_VERSION, profile=GATES) as cluster:
        deployed.deploy(cluster, image=driver_image, simulate="8xh100-80gb")
        with site_on(cluster, "life") as site:
            for name in ("kept", "goes"):
                site.create(name, part(25, "6Gi"))
            site.create("whole", WHOLE)
            kept, _, whole = [site.started(name) for name in ("kept", "goes", "whole")]
            before = deployed.published(cluster)
            plugin = plugin_container(cluster)

            cluster.upgrade_control_plane(NEWEST_VERSION)
            after = deployed.wait_published(
                cluster, gpus=8, until=lambda devices: "pad" not in types(devices)
            )
            assert types(before) == {"pad", "gpu", "monitor"}
            assert after == tuple(each for each in before if types((each,)) != {"pad"})
            assert plugin_container(cluster) == plugin
            site.create("two", {**WHOLE, "count": 2})
            site.create("slice", part(25, "6Gi"))
            site.delete("goes")
            site.started("two")
            site.started("slice")
            site.wait_gone("goes")
            site.unchanged(kept, whole)
            wait_until_settled(cluster)


@contextmanager
def api_away(cluster: Cluster) -> Iterator[None]:
    """End the API server, and start it on leaving, when it was away for a minute."""
    cluster.stop_api()
    end_s = time.monotonic() + _OUTAGE_S
    try:
        yield
        wait_until(
            lambda: "" if (left_s := end_s - time.monotonic()) <= 0 else f"{left_s:.0f} s are left",
            waiting_for="the rest of a minute without API server",
            timeout_s=_OUTAGE_S + 10.0,
        )
    finally:
        cluster.start_api()
        # These would wait for half a minute before they look for it again.
        for component in CONTROLLERS:
            cluster.stop(component)
            cluster.start(component)


def types(devices: deployed.Devices) -> set[str]:
    return {str(deployed.attribute(each, "type")) for each in devices}
