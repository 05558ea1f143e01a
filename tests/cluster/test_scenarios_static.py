"""Slots on a version that counts no shares: the oldest one as it is."""

import pytest

from tests.cluster.deployed import Devices, attribute, published
from tests.cluster.driver_fixtures import NewNamespace
from tests.cluster.tenants import (
    apply_example,
    named,
    results,
    seen,
    wait_running,
    wait_unschedulable,
)
from tests.kube.client import Json
from tests.kube.cluster import Cluster


def test_layout_is_published_as_it_was_chosen(driver_static: Cluster) -> None:
    slots: dict[int, list[int]] = {}
    for device in published(driver_static):
        assert "allowMultipleAllocations" not in device
        if attribute(device, "type") != "monitor":
            compute = int(device["capacity"]["compute"]["value"])
            slots.setdefault(attribute(device, "index"), []).append(compute)
    assert slots == {
        0: [10] * 10,
        1: [25] * 4,
        2: [50] * 2,
        3: [10] * 5 + [25] * 2,
        **{index: [100] for index in range(4, 8)},
    }


def test_tenants_get_the_slots_that_they_asked_for(
    driver_static: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_static)
    apply_example(driver_static, "slots.yaml", namespace=namespace)
    wait_running(driver_static, namespace, count=2)
    for pod, percent in (("slot-10", 10), ("slot-25", 25)):
        inside = seen(driver_static, pod, namespace=namespace)
        assert inside.compute_percent == (percent,)
        assert inside.memory_mib == (_memory_mib(published(driver_static), percent),)
        assert len(inside.nodes) == 1


@pytest.mark.timeout(240, func_only=True)
def test_slots_of_a_size_are_given_on_every_gpu_that_has_some_and_no_more(
    driver_static: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_static)

    def tenants(number: int) -> None:
        def change(each: Json) -> None:
            if each["kind"] == "Pod":
                each["metadata"]["name"] += f"-{number}"

        apply_example(driver_static, "slots.yaml", namespace=namespace, change=change)

    for number in range(6):
        tenants(number)
    wait_running(driver_static, namespace, count=12, timeout_s=120.0)
    used = [each["device"] for each in results(driver_static, namespace)]
    assert len(set(used)) == 12
    indexes = {each["name"]: attribute(each, "index") for each in published(driver_static)}
    quarters = [indexes[device] for device in used if "-slot-25-" in device]
    assert sorted(quarters) == [1, 1, 1, 1, 3, 3]
    tenants(6)
    wait_unschedulable(driver_static, namespace, "slot-25-6")


def test_whole_gpu_is_none_that_is_cut(driver_static: Cluster, new_namespace: NewNamespace) -> None:
    namespace = new_namespace(driver_static)
    for number in range(4):
        change = named(f"training-{number}")
        apply_example(driver_static, "whole-gpu.yaml", namespace=namespace, change=change)
    wait_running(driver_static, namespace, count=4)
    nodes: set[str] = set()
    for number in range(4):
        inside = seen(driver_static, f"training-{number}", namespace=namespace)
        assert inside.compute_percent == (100,)
        nodes.update(inside.nodes)
    assert nodes == {f"gpuslice-sim{index}" for index in range(4, 8)}
    apply_example(driver_static, "whole-gpu.yaml", namespace=namespace)
    wait_unschedulable(driver_static, namespace, "training")


def test_share_is_never_a_slot(driver_static: Cluster, new_namespace: NewNamespace) -> None:
    namespace = new_namespace(driver_static)
    apply_example(driver_static, "quarter.yaml", namespace=namespace)
    wait_unschedulable(driver_static, namespace, "tenant")


def test_claim_for_any_cluster_gets_a_slot_where_there_are_no_shares(
    driver_static: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_static)
    apply_example(driver_static, "slice-or-slot.yaml", namespace=namespace)
    wait_running(driver_static, namespace, count=1)
    inside = seen(driver_static, "portable", namespace=namespace)
    assert inside.compute_percent == (25,)
    assert inside.memory_mib == (_memory_mib(published(driver_static), 25),)


def test_claim_for_any_cluster_gets_a_share_where_there_are_some(
    driver_gates: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_gates)
    apply_example(driver_gates, "slice-or-slot.yaml", namespace=namespace)
    wait_running(driver_gates, namespace, count=1)
    inside = seen(driver_gates, "portable", namespace=namespace)
    assert (inside.compute_percent, inside.memory_mib) == ((25,), (15360,))


def test_two_whole_gpus_are_different_ones(
    driver_static: Cluster, new_namespace: NewNamespace
) -> None:
    namespace = new_namespace(driver_static)
    apply_example(driver_static, "two-gpus.yaml", namespace=namespace)
    wait_running(driver_static, namespace, count=1)
    assert len(set(seen(driver_static, "two-gpus", namespace=namespace).uuids)) == 2


def _memory_mib(devices: Devices, percent: int) -> int:
    """What slots of a size have, which is the same on all of the node's GPUs."""
    (memory,) = {
        each["capacity"]["memory"]["value"]
        for each in devices
        if each["capacity"].get("compute", {}).get("value") == str(percent)
    }
    return int(memory.removesuffix("Mi"))
