"""Pods that are killed, refused, or come and go in numbers."""

from tests.cluster.deployed import DRIVER, attribute, published
from tests.cluster.life_node import Holdings, wait_until_settled
from tests.cluster.life_site import WHOLE, Site, part
from tests.kube.client import Json
from tests.kube.cluster import Cluster

# Does not end when it is asked to, and tells when it ran.
_STUBBORN = "trap '' TERM; while :; do cat /proc/uptime >>/life/{name}; sleep 0.05; done"

_REFUSED = {
    "apiVersion": "config.gpuslice.io/v1alpha1",
    "kind": "SliceConfig",
    "minimumTier": "strict",
}


def test_next_pod_gets_the_gpu_of_a_force_deleted_one_only_once_that_has_ended(site: Site) -> None:
    for name in ("old", "next"):
        command = ("sh", "-c", _STUBBORN.format(name=name))
        site.create(name, _one_gpu(site.cluster), command=command, terminationGracePeriodSeconds=1)
        if name == "old":
            old = site.started(name)
    site.wait_event("next", "FailedScheduling")
    site.delete("old", gracePeriodSeconds="0")
    new = site.started("next")
    assert new.environment == old.environment
    # A refused Prepare would cost more than a minute on a node with usual settings.
    assert not [event for event in site.events("next") if "FailedPrepare" in event]
    assert _beats(site, "old")[-1] < _beats(site, "next")[0]
    wait_until_settled(site.cluster)


def test_pod_ends_and_leaves_nothing_when_one_of_its_claims_is_refused(site: Site) -> None:
    kept = site.start("kept", part(25, "6Gi"))
    site.create("pair", part(25, "6Gi"), part(10, "1Gi") | {"config": _REFUSED})
    event = site.wait_event("pair", "FailedPrepareDynamicResources", "minimumTier")
    good, bad = (site.claim_of("pair", number)["metadata"] for number in (0, 1))
    assert bad["name"] in event
    assert good["name"] not in event
    assert Holdings.of(site.cluster).records.keys() == {
        site.claim_of("kept")["metadata"]["uid"],
        good["uid"],
    }
    assert site.phase("pair") == "Pending"
    site.delete("pair")
    site.wait_gone("pair")
    wait_until_settled(site.cluster)
    site.start("after", part(25, "6Gi"))
    site.unchanged(kept)


def test_nothing_is_left_when_thirty_pods_come_and_go(site: Site) -> None:
    names = [f"pod-{number}" for number in range(30)]
    kept, early, late = names[:2], names[2:15], names[15:]
    for name in names:
        site.create(name, part(3, "2Gi"))
    tenants = [site.started(name) for name in kept]
    # The first go while the last are still coming.
    site.delete(*early)
    for name in late:
        site.started(name)
    site.wait_gone(*early)
    wait_until_settled(site.cluster)
    assert len(Holdings.of(site.cluster).records) == len(kept) + len(late)
    site.delete(*late)
    site.wait_gone(*late)
    wait_until_settled(site.cluster)
    site.unchanged(*tenants)


def _one_gpu(cluster: Cluster) -> Json:
    """Give a request that only one GPU of the node fulfils."""
    gpus = (each for each in published(cluster) if attribute(each, "type") == "gpu")
    uuid = attribute(next(gpus), "uuid")
    expression = f'device.attributes["{DRIVER}"].uuid == "{uuid}"'
    return {**WHOLE, "selectors": [{"cel": {"expression": expression}}]}


def _beats(site: Site, name: str) -> list[float]:
    """Give the times, in seconds from the start of the machine, at which a pod told that it ran."""
    lines = (site.folder / name).read_text().splitlines()
    # The last may be half a line: it was killed.
    return [float(line.split()[0]) for line in lines[:-1]]
