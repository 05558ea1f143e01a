"""Who looks at GPUs, who asks for them by their old name, and who is refused."""

from tests.cluster.deployed import gpus, simulated
from tests.cluster.driver_fixtures import NewNamespace
from tests.cluster.tenants import (
    apply_example,
    seen,
    wait_event,
    wait_running,
    wait_unschedulable,
)
from tests.kube.client import Json
from tests.kube.cluster import Cluster


def test_monitor_sees_all_gpus_beside_their_tenants(
    driver: Cluster, new_namespace: NewNamespace
) -> None:
    tenants, monitoring = new_namespace(driver), new_namespace(driver)
    with simulated(driver, gpus(2)):
        apply_example(driver, "whole-gpu.yaml", namespace=tenants)
        wait_running(driver, tenants, count=1)
        apply_example(driver, "monitor.yaml", namespace=monitoring)
        wait_running(driver, monitoring, count=1)
        inside = seen(driver, "monitor", namespace=monitoring)
        assert inside.nodes == ("gpuslice-sim0", "gpuslice-sim1")
        assert len(set(inside.uuids)) == 2
        assert inside.compute_percent == inside.memory_mib == ()
        # Nor does the monitor keep anybody away.
        apply_example(driver, "quarter.yaml", namespace=tenants)
        wait_running(driver, tenants, count=2)


def test_extended_resource_is_a_whole_gpu(
    driver_newest: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_newest)
    with simulated(driver_newest, gpus(1)):
        apply_example(driver_newest, "extended-resource.yaml", namespace=namespace)
        wait_running(driver_newest, namespace, count=1)
        inside = seen(driver_newest, "extended-resource", namespace=namespace)
        assert inside.compute_percent == (100,)
        assert inside.nodes == ("gpuslice-sim0",)
        apply_example(driver_newest, "quarter.yaml", namespace=namespace)
        wait_unschedulable(driver_newest, namespace, "tenant")


def test_refused_pod_is_told_what_to_do_and_runs_once_the_node_can(
    driver: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver)
    weak: Json = {"gpus": [{"uuid": "auto", "mps": {"controlOnly": False}}]}
    with simulated(driver, weak):
        apply_example(driver, "bursting.yaml", namespace=namespace)
        wait_event(driver, namespace, "FailedPrepareDynamicResources")
        description = driver.kubectl("describe", "pod", "bursting", "-n", namespace)
        sentence = next(line for line in description.splitlines() if "minimumTier" in line)
        assert "field minimumTier: standard is more than sharing MPS on GPU GPU-" in sentence
        assert "which is cooperative" in sentence
        assert "lower it, or select the GPU's attribute `tier` in the request" in sentence
    wait_running(driver, namespace, count=1)
    inside = seen(driver, "bursting", namespace=namespace)
    assert (inside.compute_percent, inside.memory_mib) == ((100,), (4096,))


def test_description_of_a_pod_that_does_not_fit_says_so(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)

    def want_more(each: Json) -> None:
        if each["kind"] == "ResourceClaimTemplate":
            (request,) = each["spec"]["spec"]["devices"]["requests"]
            request["exactly"]["capacity"]["requests"]["memory"] = "100Gi"

    apply_example(driver_gates, "quarter.yaml", namespace=namespace, change=want_more)
    wait_unschedulable(driver_gates, namespace, "tenant")
    description = driver_gates.kubectl("describe", "pod", "tenant", "-n", namespace)
    assert "cannot allocate all claims" in description
