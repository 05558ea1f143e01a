"""Parts of GPUs: what users ask for, what they get, and what their containers see of it."""

from collections import defaultdict

import pytest

from tests.cluster.deployed import gpus, simulated, wait_published
from tests.cluster.driver_fixtures import NewNamespace
from tests.cluster.further_nodes import further_nodes
from tests.cluster.tenants import (
    apply_example,
    named,
    results,
    seen,
    wait_event,
    wait_running,
    wait_unschedulable,
)
from tests.kube.client import Json
from tests.kube.cluster import Cluster


@pytest.mark.timeout(240, func_only=True)
def test_twenty_small_jobs_run_on_ten_gpus_of_three_nodes(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    others = {"node-1": gpus(3), "node-2": gpus(3)}
    with simulated(driver_gates, gpus(4)), further_nodes(driver_gates, others):
        apply_example(driver_gates, "small-jobs.yaml", namespace=namespace)
        found = wait_running(driver_gates, namespace, count=20, timeout_s=150.0)
        used = defaultdict(set)
        for result in results(driver_gates, namespace):
            used[result["pool"]].add(result["device"])
        assert {pool: len(devices) for pool, devices in used.items()} == {
            driver_gates.node_name: 1,
            "node-1": 1,
            "node-2": 1,
        }
        here = [
            seen(driver_gates, pod["metadata"]["name"], namespace=namespace)
            for pod in found
            if pod["spec"]["nodeName"] == driver_gates.node_name
        ]
        assert len(here) > 1
        assert len(set(here)) == 1
        assert here[0].memory_mib == (3815,)
        assert here[0].nodes == ("gpuslice-sim0",)


def test_opposite_tenants_share_one_gpu(driver: Cluster, new_namespace: NewNamespace) -> None:
    namespace = new_namespace(driver)
    apply_example(driver, "opposites.yaml", namespace=namespace)
    wait_running(driver, namespace, count=2)
    compute_heavy = seen(driver, "compute-heavy", namespace=namespace)
    memory_heavy = seen(driver, "memory-heavy", namespace=namespace)
    assert (compute_heavy.compute_percent, compute_heavy.memory_mib) == ((25,), (6144,))
    assert (memory_heavy.compute_percent, memory_heavy.memory_mib) == ((6,), (25600,))
    assert compute_heavy.uuids == memory_heavy.uuids
    assert compute_heavy.nodes == memory_heavy.nodes == ("gpuslice-sim0",)


@pytest.mark.timeout(180, func_only=True)
def test_ten_developers_share_one_gpu_and_an_eleventh_waits(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace, other = new_namespace(driver_gates), new_namespace(driver_gates)
    with simulated(driver_gates, gpus(1)):
        apply_example(driver_gates, "developers.yaml", namespace=namespace)
        found = wait_running(driver_gates, namespace, count=10, timeout_s=120.0)
        for pod in found:
            inside = seen(driver_gates, pod["metadata"]["name"], namespace=namespace)
            # 10 % are counted, and more may be used while others idle.
            assert (inside.compute_percent, inside.memory_mib) == ((100,), (7168,))
        counted = [each["consumedCapacity"] for each in results(driver_gates, namespace)]
        assert counted == [{"compute": "10", "memory": "7Gi", "shares": "1"}] * 10
        apply_example(driver_gates, "quarter.yaml", namespace=other)
        message = wait_unschedulable(driver_gates, other, "tenant")
        assert "cannot allocate all claims" in message


def test_memory_only_tenants_join_and_compute_only_ones_do_not(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace, other = new_namespace(driver_gates), new_namespace(driver_gates)
    with simulated(driver_gates, gpus(1)):
        apply_example(driver_gates, "memory-only.yaml", namespace=namespace)
        apply_example(driver_gates, "quarter.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=2)
        inside = seen(driver_gates, "memory-only", namespace=namespace)
        # 1 % is counted, and what is idle may be used.
        assert (inside.compute_percent, inside.memory_mib) == ((100,), (16384,))
        counted = [each["consumedCapacity"] for each in results(driver_gates, namespace)]
        assert {"compute": "1", "memory": "16Gi", "shares": "1"} in counted
        apply_example(driver_gates, "compute-only.yaml", namespace=other)
        wait_unschedulable(driver_gates, other, "compute-only")


def test_compute_only_tenant_holds_all_memory_and_is_told_so(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace, other = new_namespace(driver_gates), new_namespace(driver_gates)
    with simulated(driver_gates, gpus(1)):
        apply_example(driver_gates, "compute-only.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=1)
        inside = seen(driver_gates, "compute-only", namespace=namespace)
        (usable,) = inside.memory_mib
        assert inside.compute_percent == (30,)
        assert usable == _memory_mib(wait_published(driver_gates, gpus=1))
        warning = wait_event(driver_gates, namespace, "PreparedWithWarning")
        assert "name memory in capacity.requests" in warning
        apply_example(driver_gates, "quarter.yaml", namespace=other)
        wait_unschedulable(driver_gates, other, "tenant")


def test_two_containers_of_a_pod_use_one_share(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    apply_example(driver_gates, "two-containers.yaml", namespace=namespace)
    wait_running(driver_gates, namespace, count=1)
    server = seen(driver_gates, "two-containers", namespace=namespace, container="server")
    sidecar = seen(driver_gates, "two-containers", namespace=namespace, container="sidecar")
    assert server == sidecar
    assert (server.compute_percent, server.memory_mib) == ((20,), (8192,))


def test_two_pods_use_one_share(driver: Cluster, new_namespace: NewNamespace) -> None:
    namespace = new_namespace(driver)
    apply_example(driver, "two-pods.yaml", namespace=namespace)
    wait_running(driver, namespace, count=2)
    first = seen(driver, "first", namespace=namespace)
    assert first == seen(driver, "second", namespace=namespace)
    assert (first.compute_percent, first.memory_mib) == ((20,), (8192,))
    assert len(results(driver, namespace)) == 1


def test_tenants_go_to_the_next_gpu_when_one_is_full(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    names = ("one", "two", "three", "four", "five", "six")
    for name in names:
        apply_example(driver_gates, "quarter.yaml", namespace=namespace, change=named(name))
    wait_running(driver_gates, namespace, count=6)
    nodes = [seen(driver_gates, name, namespace=namespace).nodes for name in names]
    assert sorted(nodes) == [("gpuslice-sim0",)] * 4 + [("gpuslice-sim1",)] * 2


def test_share_is_free_again_when_its_pod_is_gone(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    with simulated(driver_gates, gpus(1)):
        for name in ("one", "two", "three", "four"):
            apply_example(driver_gates, "quarter.yaml", namespace=namespace, change=named(name))
        wait_running(driver_gates, namespace, count=4)
        apply_example(driver_gates, "quarter.yaml", namespace=namespace, change=named("five"))
        wait_unschedulable(driver_gates, namespace, "five")
        driver_gates.kubectl("delete", "pod", "-n", namespace, "two")
        wait_running(driver_gates, namespace, count=4)
        assert seen(driver_gates, "five", namespace=namespace).compute_percent == (25,)


def _memory_mib(devices: tuple[Json, ...]) -> int:
    (gpu,) = (each for each in devices if each.get("allowMultipleAllocations"))
    return int(gpu["capacity"]["memory"]["value"].removesuffix("Mi"))
