"""Who uses shared GPUs, by processes of real pods whose memory on the GPU alone is simulated."""

import re
import urllib.request

import pytest

from tests.cluster import deployed
from tests.cluster.deployed import set_simulated
from tests.cluster.life_site import Site, Tenant, part
from tests.cluster.mps_fixtures import mps_document
from tests.cluster.mps_node import TIMEOUT_S, MpsNode, gpu_of
from tests.cluster.mps_tenants import start_all, with_config
from tests.kube.cluster import Cluster
from tests.kube.process import wait_until

pytestmark = pytest.mark.timeout(300, func_only=True)

_GIB = 1 << 30
_SHARE = part(25, "6Gi")


def test_the_memory_of_a_claim_is_that_of_all_pods_that_share_it(
    mps_site: Site, mps_node: MpsNode
) -> None:
    mps_site.create_claim("shared", _SHARE)
    for name in ("first", "second"):
        mps_site.create_with(name, "shared")
    first, second = mps_site.started("first"), mps_site.started("second")
    neighbour = mps_site.start("neighbour", _SHARE)
    assert gpu_of(neighbour) == gpu_of(first)
    _use(mps_node, {first: "2Gi", second: "3Gi", neighbour: "5Gi"})
    _wait_used(mps_node.cluster, "shared", 5 * _GIB)
    assert mps_site.events("shared") == []
    _use(mps_node, {first: "4Gi", second: "4Gi", neighbour: "5Gi"})
    mps_site.wait_event(
        "shared", "ShareMemoryExceeded", "8192 MiB", "6144 MiB", "first/main, second/main"
    )
    assert _exceeded(mps_site, neighbour) == []
    assert mps_node.server(gpu_of(first))["terminated"] == []
    mps_site.unchanged(first, second, neighbour)


def test_a_client_above_its_memory_is_ended_where_its_claim_says_so(
    mps_site: Site, mps_node: MpsNode
) -> None:
    strict, lenient = start_all(
        mps_site, strict=with_config(_SHARE, onExceed="Terminate"), lenient=_SHARE
    )
    gpu = gpu_of(strict)
    assert gpu_of(lenient) == gpu
    _use(mps_node, {strict: "7Gi", lenient: "8Gi"})
    claim = mps_site.claim_of("strict")["metadata"]["name"]
    mps_site.wait_event(claim, "ShareClientTerminated", f"process {strict.pid} ")
    assert mps_node.server(gpu)["terminated"] == [strict.pid]
    _wait_exceeded(mps_site, lenient)
    assert mps_node.server(gpu)["terminated"] == [strict.pid]
    mps_site.unchanged(lenient)


def test_processes_that_hold_no_share_or_go_past_theirs_are_told(
    mps_site: Site, mps_node: MpsNode
) -> None:
    cluster = mps_node.cluster
    (tenant,) = start_all(mps_site, tenant=_SHARE)
    gpu = gpu_of(tenant)
    intruder = mps_site.start("intruder")
    _wait_strangers(cluster, Intruder=0, Bypass=0)
    processes = [
        {"gpu": gpu, "pid": intruder.pid, "memory": "1Gi"},
        {"gpu": gpu, "pid": tenant.pid, "memory": "1Gi", "mps": False},
    ]
    set_simulated(cluster, mps_document(cluster, processes=processes))
    _wait_strangers(cluster, Intruder=1, Bypass=1)
    log = deployed.plugin_log(cluster, lines=-1)
    assert f"process {intruder.pid} on the node, of pod {intruder.uid}, uses GPU {gpu}" in log
    claim = mps_site.claim_of("tenant")["metadata"]["name"]
    mps_site.wait_event(claim, "ShareBypassed", f"process {tenant.pid} ", tenant.uid)
    set_simulated(cluster, mps_document(cluster))
    _wait_strangers(cluster, Intruder=0, Bypass=0)


def _use(node: MpsNode, memory: dict[Tenant, str]) -> None:
    """Let first processes of pods be clients with so much memory of their GPUs."""
    processes = [
        {"gpu": gpu_of(tenant), "pid": tenant.pid, "memory": amount}
        for tenant, amount in memory.items()
    ]
    set_simulated(node.cluster, mps_document(node.cluster, processes=processes))


def _exceeded(site: Site, tenant: Tenant) -> list[str]:
    claim = site.claim_of(tenant.name)["metadata"]["name"]
    return [event for event in site.events(claim) if "ShareMemoryExceeded" in event]


def _wait_exceeded(site: Site, tenant: Tenant) -> None:
    claim = site.claim_of(tenant.name)["metadata"]["name"]
    site.wait_event(claim, "ShareMemoryExceeded")


def _wait_used(cluster: Cluster, claim: str, amount_bytes: int) -> None:
    def found() -> list[float]:
        return _metric(cluster, "share_memory_used_bytes", claim=claim)

    wait_until(
        lambda: "" if found() == [amount_bytes] else str(found()),
        waiting_for=f"the memory of claim {claim}",
        timeout_s=TIMEOUT_S,
    )


def _wait_strangers(cluster: Cluster, **wanted: int) -> None:
    def found() -> dict[str, list[float]]:
        return {kind: _metric(cluster, "strangers", kind=kind) for kind in wanted}

    wait_until(
        lambda: "" if found() == {kind: [wanted[kind]] for kind in wanted} else str(found()),
        waiting_for=f"strangers {wanted}",
        timeout_s=TIMEOUT_S,
    )


def _metric(cluster: Cluster, name: str, **labels: str) -> list[float]:
    """Give the values of the plugin's metric that have all the labels."""
    address = deployed.plugin_pod(cluster)["status"]["podIP"]
    # A proxy from the environment is none of the node's business.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{address}:8080/metrics", timeout=10.0) as page:
        text: str = page.read().decode()
    found = re.findall(rf"^gpuslice_{name}{{(.*)}} (\S+)$", text, re.MULTILINE)
    return [
        float(value)
        for shown, value in found
        if all(f'{label}="{wanted}"' in shown for label, wanted in labels.items())
    ]
