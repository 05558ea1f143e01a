"""What events and failed reads mean for GPUs and devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.device import Inventory, UnreadableGpu
from dra_driver.model.health import DeviceHealth, GpuEvent, HealthRow, HealthStatus
from dra_driver.model.pool import Device, Pool
from dra_driver.plan.health import XidPolicy, fold, health_rows, merge, without_driver
from tests.builders import NODE, gpu, inventory, uuid

TWO = inventory(gpu(0), gpu(1))


def without(number: int, *, label: str = "") -> Inventory:
    """TWO, read while one GPU is missing; with a label, it is listed as unreadable."""
    left = inventory(*(each for each in TWO.gpus if each.uuid != uuid(number)))
    unreadable = (UnreadableGpu(label=label, text="GPU is lost: reset it"),) if label else ()
    return replace(left, unreadable=unreadable)


def health(of: Inventory, number: int) -> DeviceHealth:
    (found,) = (each for each in of.health if each.uuid == uuid(number))
    return found


def test_fold_marks_the_gpu_of_a_critical_xid() -> None:
    folded = fold(TWO, (GpuEvent(uuid=uuid(1), xid=79),), XidPolicy())

    assert health(folded, 1).status is HealthStatus.UNHEALTHY
    assert health(folded, 1).cause == "xid-79"
    assert health(folded, 0) == health(TWO, 0)


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_fold_ignores_xids_of_applications(xid: int) -> None:
    assert fold(TWO, (GpuEvent(uuid=uuid(0), xid=xid),), XidPolicy()) == TWO


def test_fold_ignores_xids_that_a_setting_adds() -> None:
    policy = XidPolicy.with_ignored([94])

    assert fold(TWO, (GpuEvent(uuid=uuid(0), xid=94),), policy) == TWO
    assert fold(TWO, (GpuEvent(uuid=uuid(0), xid=31),), policy) == TWO


def test_fold_ignores_a_gpu_that_is_not_known() -> None:
    events = (GpuEvent(uuid="", xid=79), GpuEvent(uuid=uuid(9), xid=79))

    assert fold(TWO, events, XidPolicy()) == TWO


def test_fold_keeps_the_first_cause() -> None:
    events = tuple(GpuEvent(uuid=uuid(0), xid=xid) for xid in (48, 79, 95))

    assert health(fold(TWO, events, XidPolicy()), 0).cause == "xid-48"


def test_merge_gives_what_was_read_when_nothing_was_known() -> None:
    assert merge(None, TWO) == TWO


@pytest.mark.parametrize("label", [uuid(1), "index 1", "PCI 0000:1b:00.0"])
def test_merge_keeps_an_unreadable_gpu_as_lost(label: str) -> None:
    merged = merge(TWO, without(1, label=label), held=frozenset())

    assert merged.gpus == TWO.gpus
    assert merged.unreadable == ()
    assert health(merged, 1).cause == "lost"
    assert health(merged, 1).message == "GPU is lost: reset it"
    assert health(merged, 0).status is HealthStatus.HEALTHY


def test_merge_keeps_reasons_of_gpus_that_were_never_known() -> None:
    read = replace(TWO, unreadable=(UnreadableGpu(label="index 2", text="lost"),))

    assert merge(TWO, read) == read


def test_merge_keeps_a_gpu_that_vanished_only_while_it_is_held() -> None:
    held = merge(TWO, without(1), held=frozenset({uuid(1)}))

    assert health(held, 1).cause == "lost"
    assert merge(TWO, without(1)) == held
    assert merge(TWO, without(1), held=frozenset({uuid(0)})) == without(1)


def test_merge_restores_a_lost_gpu_when_it_can_be_read() -> None:
    lost = merge(TWO, without(0, label="index 0"))

    assert merge(lost, TWO) == TWO


def test_merge_keeps_an_xid_until_the_gpu_was_lost_and_came_back() -> None:
    failed = fold(TWO, (GpuEvent(uuid=uuid(0), xid=79),), XidPolicy())

    still = merge(failed, TWO)

    assert health(still, 0).cause == "xid-79"
    assert merge(merge(still, without(0, label=uuid(0))), TWO) == TWO


def test_merge_keeps_domains_while_a_gpu_is_missing() -> None:
    known = inventory(gpu(0), gpu(1, nvlink_domain="n1"), gpu(2, nvlink_domain="n1"))
    read = inventory(gpu(1, nvlink_domain="n0"), gpu(2, nvlink_domain="n0"))

    merged = merge(known, read)

    assert [each.nvlink_domain for each in merged.gpus] == ["n0", "n1", "n1"]


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_merge_is_stable_and_sorted(before: set[int], after: set[int]) -> None:
    known = inventory(*(gpu(number) for number in sorted(before)))
    read = inventory(*(gpu(number) for number in sorted(after)))

    merged = merge(known, read)

    assert [each.index for each in merged.gpus] == sorted(before | after)
    assert [each.uuid for each in merged.health] == sorted(each.uuid for each in merged.gpus)
    assert merge(merged, read) == merged
    assert {each.uuid for each in merged.health if each.cause == "lost"} == {
        uuid(number) for number in before - after
    }


def test_without_driver_keeps_all_gpus_unhealthy_until_they_can_be_read() -> None:
    failed = fold(TWO, (GpuEvent(uuid=uuid(0), xid=79),), XidPolicy())

    away = without_driver(failed, "driver\nnot loaded")

    assert away.gpus == TWO.gpus
    assert {each.cause for each in away.health} == {"driver-not-loaded"}
    assert away.health[0].message == "driver not loaded"
    assert merge(away, TWO) == TWO


def device(name: str, *, of: str, type_: str = "gpu") -> Device:
    return Device(name=name, attributes=(("type", type_), ("uuid", of)))


def test_health_rows_speak_of_every_device_but_pads() -> None:
    pool = Pool(
        driver="gpuslice.io",
        name=NODE,
        slices=(
            (device("pad-00", of="pad-00", type_="pad"), device("gpu-b", of=uuid(1))),
            (
                device("gpu-a", of=uuid(0)),
                device("gpu-a-monitor", of=uuid(0), type_="monitor"),
                device("gpu-c", of=uuid(9)),
            ),
        ),
    )
    failed = fold(TWO, (GpuEvent(uuid=uuid(0), xid=79),), XidPolicy())

    rows = health_rows(pool, failed)

    assert [(row.device, row.status) for row in rows] == [
        ("gpu-a", HealthStatus.UNHEALTHY),
        ("gpu-a-monitor", HealthStatus.UNHEALTHY),
        ("gpu-b", HealthStatus.HEALTHY),
        ("gpu-c", HealthStatus.UNKNOWN),
    ]
    assert {row.pool for row in rows} == {NODE}
    assert "XID 79" in rows[0].message


def test_health_rows_cut_messages_to_what_the_kubelet_takes() -> None:
    long = replace(TWO.health[0], status=HealthStatus.UNHEALTHY, message="x" * 5000)
    pool = Pool(driver="d", name=NODE, slices=((device("gpu-a", of=uuid(0)),),))

    (row,) = health_rows(pool, replace(TWO, health=(long,)))

    assert row == HealthRow(
        pool=NODE, device="gpu-a", status=HealthStatus.UNHEALTHY, message="x" * 1024
    )
