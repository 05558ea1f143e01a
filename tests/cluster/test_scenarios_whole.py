"""Whole GPUs, one or several for a pod: nobody joins, and no claim ends the scheduler."""

from tests.cluster.deployed import attribute, gpus, published, simulated
from tests.cluster.driver_fixtures import NewNamespace
from tests.cluster.further_nodes import further_nodes
from tests.cluster.tenants import (
    apply_example,
    delete_pods,
    named,
    results,
    seen,
    wait_running,
    wait_unschedulable,
)
from tests.kube.cluster import Cluster


def test_claim_without_numbers_owns_its_gpu_and_nobody_joins(
    driver: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver)
    with simulated(driver, gpus(1)):
        apply_example(driver, "whole-gpu.yaml", namespace=namespace)
        wait_running(driver, namespace, count=1)
        inside = seen(driver, "training", namespace=namespace)
        assert inside.compute_percent == (100,)
        assert inside.nodes == ("gpuslice-sim0",)
        for name, pod in (("quarter.yaml", "tenant"), ("memory-only.yaml", "memory-only")):
            apply_example(driver, name, namespace=namespace)
            wait_unschedulable(driver, namespace, pod)
        delete_pods(driver, namespace, "training")
        wait_running(driver, namespace, count=2)


def test_whole_gpu_is_none_that_has_a_tenant(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    with simulated(driver_gates, gpus(2)):
        apply_example(driver_gates, "quarter.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=1)
        apply_example(driver_gates, "whole-gpu.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=2)
        whole = seen(driver_gates, "training", namespace=namespace)
        assert whole.uuids != seen(driver_gates, "tenant", namespace=namespace).uuids
        change = named("second")
        apply_example(driver_gates, "whole-gpu.yaml", namespace=namespace, change=change)
        wait_unschedulable(driver_gates, namespace, "second")


def test_two_gpus_are_two_different_ones(driver: Cluster, new_namespace: NewNamespace) -> None:
    namespace = new_namespace(driver)
    apply_example(driver, "two-gpus.yaml", namespace=namespace)
    wait_running(driver, namespace, count=1)
    inside = seen(driver, "two-gpus", namespace=namespace)
    assert len(set(inside.uuids)) == 2
    assert inside.compute_percent == (100, 100)
    assert inside.nodes == ("gpuslice-sim0", "gpuslice-sim1")


def test_two_gpus_are_not_to_be_had_where_one_has_a_tenant(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    with simulated(driver_gates, gpus(2)):
        apply_example(driver_gates, "quarter.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=1)
        apply_example(driver_gates, "two-gpus.yaml", namespace=namespace)
        wait_unschedulable(driver_gates, namespace, "two-gpus")
        delete_pods(driver_gates, namespace, "tenant")
        wait_running(driver_gates, namespace, count=1)


def test_all_gpus_are_those_with_room_on_the_oldest_version(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    apply_example(driver_gates, "quarter.yaml", namespace=namespace)
    wait_running(driver_gates, namespace, count=1)
    taken = seen(driver_gates, "tenant", namespace=namespace).uuids
    apply_example(driver_gates, "all-gpus.yaml", namespace=namespace)
    wait_running(driver_gates, namespace, count=2)
    inside = seen(driver_gates, "all-gpus", namespace=namespace)
    assert set(inside.uuids) == _uuids(driver_gates) - set(taken)
    assert len(inside.uuids) == 7


def test_all_gpus_are_to_be_had_only_together_on_the_newest_version(
    driver_newest: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_newest)
    apply_example(driver_newest, "quarter.yaml", namespace=namespace)
    wait_running(driver_newest, namespace, count=1)
    apply_example(driver_newest, "all-gpus.yaml", namespace=namespace)
    wait_unschedulable(driver_newest, namespace, "all-gpus")
    delete_pods(driver_newest, namespace, "tenant")
    wait_running(driver_newest, namespace, count=1)
    inside = seen(driver_newest, "all-gpus", namespace=namespace)
    assert set(inside.uuids) == _uuids(driver_newest)
    assert len(inside.uuids) == 8


def test_whole_node_waits_until_none_of_its_gpus_has_a_tenant(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    apply_example(driver_gates, "quarter.yaml", namespace=namespace)
    wait_running(driver_gates, namespace, count=1)
    apply_example(driver_gates, "whole-node.yaml", namespace=namespace)
    wait_unschedulable(driver_gates, namespace, "big-training")
    delete_pods(driver_gates, namespace, "tenant")
    wait_running(driver_gates, namespace, count=1)
    inside = seen(driver_gates, "big-training", namespace=namespace)
    assert set(inside.uuids) == _uuids(driver_gates)
    assert inside.nodes == tuple(f"gpuslice-sim{number}" for number in range(8))


def test_eight_gpus_of_one_nvlink_domain_are_never_scattered_ones(
    driver: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver)
    with further_nodes(driver, {"node-1": gpus(4, 4)}):
        apply_example(driver, "quarter.yaml", namespace=namespace, node=driver.node_name)
        wait_running(driver, namespace, count=1)
        # Eight free GPUs there are, but in two domains; and seven in one.
        apply_example(driver, "nvlink-domain.yaml", namespace=namespace)
        message = wait_unschedulable(driver, namespace, "nvlink-domain")
        assert "0/2 nodes are available" in message
        delete_pods(driver, namespace, "tenant")
        wait_running(driver, namespace, count=1)
        assert {each["pool"] for each in results(driver, namespace)} == {driver.node_name}
        inside = seen(driver, "nvlink-domain", namespace=namespace)
        assert set(inside.uuids) == _uuids(driver)
        assert len(set(inside.uuids)) == 8


def test_second_choice_is_taken_where_the_first_is_not_free(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    with simulated(driver_gates, gpus(2)):
        apply_example(driver_gates, "quarter.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=1)
        apply_example(driver_gates, "whole-else-slice.yaml", namespace=namespace)
        wait_running(driver_gates, namespace, count=2)
        whole = seen(driver_gates, "whole-else-slice", namespace=namespace)
        assert whole.compute_percent == (100,)
        change = named("second")
        apply_example(driver_gates, "whole-else-slice.yaml", namespace=namespace, change=change)
        wait_running(driver_gates, namespace, count=3)
        half = seen(driver_gates, "second", namespace=namespace)
        assert (half.compute_percent, half.memory_mib) == ((50,), (20480,))
        assert half.uuids == seen(driver_gates, "tenant", namespace=namespace).uuids


def _uuids(cluster: Cluster) -> set[str]:
    return {
        str(attribute(device, "uuid"))
        for device in published(cluster)
        if attribute(device, "type") == "gpu"
    }
