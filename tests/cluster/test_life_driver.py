"""What becomes of pods while the driver is updated, taken away, or loses its ResourceSlices."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import deployed
from tests.cluster.life_node import Holdings, wait_until_settled
from tests.cluster.life_plugin import (
    change,
    of_node,
    plugin_pods,
    plugins,
    published_slices,
    update,
    wait_slices_renewed,
)
from tests.cluster.life_processes import processes
from tests.cluster.life_site import WHOLE, Site, part
from tests.kube.client import Json
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until

_NOWHERE: Json = {"gpuslice.io/no-such-node": "true"}


def test_claims_are_prepared_and_unprepared_while_two_plugins_of_an_update_serve(
    site: Site,
) -> None:
    cluster = site.cluster
    (old,) = plugins(cluster)
    # Shares that a plugin simulates itself are another's only when it has ended.
    requests = {"kept": part(20, "6Gi"), "goes-during": WHOLE, "goes-after": part(20, "6Gi")}
    for name, request in requests.items():
        site.create(name, request)
    kept, *_ = [site.started(name) for name in requests]
    devices = deployed.published(cluster)
    with update(cluster):
        wait_until(
            lambda: "" if len(plugins(cluster)) == 2 else f"only {plugins(cluster)}",
            waiting_for="the pods of both plugins to be ready",
            timeout_s=60.0,
        )
        site.create("comes-during", WHOLE)
        site.delete("goes-during")
        site.wait_gone("goes-during")
        site.started("comes-during")
        assert old in plugins(cluster)
    deployed.wait_deployed(cluster)
    assert old not in plugins(cluster)
    site.unchanged(kept)
    wait_until_settled(cluster)
    assert deployed.published(cluster) == devices
    site.delete("goes-after", "comes-during")
    site.start("comes-after", part(20, "6Gi"))
    site.wait_gone("goes-after", "comes-during")
    wait_until_settled(cluster)


def test_pods_end_once_the_plugin_is_back_when_they_are_deleted_without_it(site: Site) -> None:
    cluster = site.cluster
    site.create("kept", part(25, "6Gi"))
    site.create("goes", WHOLE)
    kept, goes = site.started("kept"), site.started("goes")
    with away(cluster):
        site.delete("goes")
        site.create("waits", part(25, "6Gi"))
        wait_until(
            lambda: str(processes(cluster, goes.container) or ""),
            waiting_for="the end of the container of goes",
        )
        site.wait_event("waits", "DRA driver gpuslice.io is not registered")
        # Its GPU must not be free before somebody has let go of it.
        assert site.phase("goes") == "Running"
        assert len(Holdings.of(cluster).records) == 2
    site.wait_gone("goes")
    site.started("waits")
    site.unchanged(kept)
    wait_until_settled(cluster)


def test_slices_come_back_when_they_are_deleted_by_hand(site: Site) -> None:
    cluster = site.cluster
    kept = site.start("kept", part(25, "6Gi"))
    slices, devices = published_slices(cluster), deployed.published(cluster)
    cluster.admin.delete(deployed.SLICES, fieldSelector=of_node(cluster))
    wait_slices_renewed(cluster, old=slices, devices=devices)
    site.start("new", WHOLE)
    site.unchanged(kept)
    wait_until_settled(cluster)


@contextmanager
def away(cluster: Cluster) -> Iterator[None]:
    """Take the driver from the node, and bring it back on leaving."""
    change(cluster, {"template": {"spec": {"nodeSelector": _NOWHERE}}})
    try:
        wait_until(
            lambda: ", ".join(pod["metadata"]["name"] for pod in plugin_pods(cluster)),
            waiting_for="the end of the driver's Pod",
            timeout_s=60.0,
        )
        yield
    finally:
        back = {"nodeSelector": dict.fromkeys(_NOWHERE)}
        change(cluster, {"template": {"spec": back}})
    deployed.wait_deployed(cluster)
