"""Pools: what is offered, in which order, in which slices."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.model.capability import ApiCapability
from dra_driver.model.device import Inventory, Tier, UnreadableGpu
from dra_driver.model.pool import Capacity, RequestPolicy, Taint, TaintEffect
from dra_driver.plan.naming import gpu_device, monitor_device, slot_device
from dra_driver.plan.slices import PublishMode
from tests import builders
from tests.unit.publishing import (
    DEFAULT_34,
    DEFAULT_37,
    GATES_34,
    abilities,
    device,
    kinds,
    monitor,
    names,
    options,
    pool_of,
    sick,
)

MIB = 1 << 20
STATIC = PublishMode.STATIC


def node(count: int) -> Inventory:
    return builders.inventory(*(builders.gpu(number) for number in range(count)))


def test_build_pool_offers_shares_and_monitors_when_server_counts_them() -> None:
    pool = pool_of(node(2))
    gpus = node(2).gpus
    assert names(pool) == [
        *(gpu_device(gpu.uuid) for gpu in gpus),
        *(monitor_device(gpu.uuid) for gpu in gpus),
    ]
    shared = device(pool, gpus[0])
    memory = 80041 * MIB
    assert shared.shareable
    assert dict(shared.attributes)["sharing"] == "Shared"
    assert dict(shared.capacity) == {
        "compute": Capacity(
            value=100, policy=RequestPolicy(default=1, minimum=1, maximum=100, step=1)
        ),
        "memory": Capacity(
            value=memory,
            policy=RequestPolicy(default=memory, minimum=256 * MIB, maximum=memory, step=MIB),
        ),
        "shares": Capacity(
            value=48, policy=RequestPolicy(default=1, minimum=1, maximum=48, step=1)
        ),
    }
    assert not monitor(pool, gpus[0]).shareable
    assert all(capacity.value == 0 for _, capacity in monitor(pool, gpus[0]).capacity)
    assert pool.notes == ()


def test_build_pool_puts_pads_first_in_one_slice_when_server_is_1_34() -> None:
    pool = pool_of(node(2), GATES_34)
    assert len(pool.slices) == 1
    assert kinds(pool) == ["pad"] * 32 + ["gpu"] * 2 + ["monitor"] * 2
    largest = {name: capacity.value for name, capacity in pool.devices[32].capacity}
    for pad in pool.devices[:32]:
        assert not pad.shareable
        assert dict(pad.attributes)["uuid"] == pad.name
        assert {name: capacity.value for name, capacity in pad.capacity} == largest
        assert all(capacity.policy is None for _, capacity in pad.capacity)
        assert [name for name, _ in pad.attributes] == [
            name for name, _ in pool.devices[32].attributes
        ]


@pytest.mark.parametrize(("count", "consumable"), [(48, True), (49, False)])
def test_build_pool_falls_back_to_static_when_pads_do_not_fit(
    count: int, *, consumable: bool
) -> None:
    pool = pool_of(node(count), GATES_34)
    assert device(pool, builders.gpu(0)).shareable is consumable
    assert bool(pool.notes) is not consumable
    assert all(len(devices) <= 128 for devices in pool.slices)
    # 1.34's scheduler dies of claims for more devices than a slice holds; 32 is the most.
    assert all(len(devices) >= 32 for devices in pool.slices)


@pytest.mark.parametrize("publish", [PublishMode.AUTO, PublishMode.CONSUMABLE])
def test_build_pool_is_static_when_server_would_drop_protecting_fields(
    publish: PublishMode,
) -> None:
    pool = pool_of(node(1), DEFAULT_34, publish=options(publish))
    whole = device(pool, builders.gpu(0))
    assert not whole.shareable
    assert dict(whole.attributes)["sharing"] == "Exclusive"
    assert all(capacity.policy is None for _, capacity in whole.capacity)
    assert bool(pool.notes) is (publish is PublishMode.CONSUMABLE)


def test_build_pool_orders_slots_by_size_when_layout_is_static() -> None:
    inventory = node(3)
    first, second, third = (gpu.uuid for gpu in inventory.gpus)
    pool = pool_of(inventory, DEFAULT_34, publish=options(STATIC, "2x50,1=1x50+2x25,2=whole"))
    assert names(pool)[:6] == [
        slot_device(second, compute_percent=25, number=0),
        slot_device(second, compute_percent=25, number=1),
        slot_device(first, compute_percent=50, number=0),
        slot_device(first, compute_percent=50, number=1),
        slot_device(second, compute_percent=50, number=0),
        gpu_device(third),
    ]
    assert kinds(pool)[6:] == ["monitor"] * 3
    slot = dict(pool.devices[0].capacity)
    assert (slot["compute"].value, slot["memory"].value) == (25, 80041 * 25 // 100 * MIB)


def test_build_pool_notes_selector_when_static_layout_names_no_gpu() -> None:
    pool = pool_of(node(1), DEFAULT_34, publish=options(STATIC, "7=2x50"))
    assert pool.notes == ("the static layout names 7, which is no GPU of this node",)


@pytest.mark.parametrize("server", [DEFAULT_34, DEFAULT_37])
def test_build_pool_offers_gpu_whole_when_it_cannot_be_shared(server: ApiCapability) -> None:
    inventory = node(2)
    able = (
        *abilities(inventory)[:1],
        *abilities(builders.inventory(builders.gpu(1)), tier=None, reason="broken MPS"),
    )
    pool = pool_of(inventory, server, publish=options(layout="2x50"), able=able)
    whole = device(pool, inventory.gpus[1])
    assert not whole.shareable
    assert dict(whole.attributes)["sharing"] == "Exclusive"
    assert dict(whole.attributes)["tier"] == str(Tier.NONE)
    assert pool.notes == (f"{inventory.gpus[1].uuid}: offered whole: broken MPS",)
    assert names(pool).index(whole.name) == len(names(pool)) - 3


def test_build_pool_leaves_memory_out_when_board_does_not_say() -> None:
    inventory = builders.inventory(builders.gpu(0, memory_total_bytes=None), builders.gpu(1))
    pool = pool_of(inventory)
    whole = device(pool, inventory.gpus[0])
    assert not whole.shareable
    assert [name for name, _ in whole.capacity] == ["compute", "shares"]
    assert device(pool, inventory.gpus[1]).shareable
    assert pool.notes == (f"{inventory.gpus[0].uuid}: offered whole: its memory is not known",)


@pytest.mark.parametrize(("usable_mib", "shared"), [(256, False), (257, True)])
def test_build_pool_shares_memory_when_there_is_room_for_a_step(
    usable_mib: int, *, shared: bool
) -> None:
    # 64 MiB for an MPS server and a margin of 128 MiB are kept back.
    gpu = builders.gpu(0, memory_total_bytes=(usable_mib + 192) * MIB, memory_reserved_bytes=0)
    pool = pool_of(builders.inventory(gpu))
    assert dict(device(pool, gpu).capacity)["memory"].value == usable_mib * MIB
    assert device(pool, gpu).shareable is shared


def test_build_pool_leaves_boards_out_when_they_are_in_mig_mode_or_unreadable() -> None:
    inventory = builders.inventory(
        builders.gpu(0, mig_enabled=True),
        builders.gpu(1),
        unreadable=(UnreadableGpu(label="index 2", text="GPU_IS_LOST: reset it"),),
    )
    pool = pool_of(inventory)
    assert len(pool.devices) == 2
    assert [note.split(":")[0] for note in pool.notes] == [str(builders.uuid(0)), "index 2"]


def test_build_pool_is_one_empty_slice_when_there_are_no_gpus() -> None:
    for server in (DEFAULT_34, GATES_34, DEFAULT_37):
        assert pool_of(builders.inventory(), server).slices == ((),)


def test_build_pool_taints_devices_but_not_monitors_when_gpu_is_sick() -> None:
    inventory = sick(node(2), builders.uuid(1))
    pool = pool_of(inventory)
    taint = Taint(key="gpuslice.io/unhealthy", value="xid-79", effect=TaintEffect.NO_SCHEDULE)
    assert device(pool, inventory.gpus[1]).taints == (taint,)
    assert device(pool, inventory.gpus[0]).taints == ()
    assert monitor(pool, inventory.gpus[1]).taints == ()


@pytest.mark.parametrize(
    ("cause", "value"), [("", "unknown"), ("a b/c!", "a-b-c"), ("-" * 9 + "x" * 99, "x" * 54)]
)
def test_build_pool_makes_legal_taint_values_when_cause_is_not(cause: str, value: str) -> None:
    pool = pool_of(sick(node(1), builders.uuid(0), cause=cause))
    assert pool.devices[0].taints[0].value == value


def test_build_pool_leaves_sick_gpu_out_when_server_drops_taints() -> None:
    inventory = sick(node(2), builders.uuid(1))
    publish = options(STATIC, "2x50")
    held = slot_device(builders.uuid(1), compute_percent=50, number=1)
    gone = pool_of(inventory, DEFAULT_34, publish=publish)
    kept = pool_of(inventory, DEFAULT_34, publish=publish, in_use=frozenset({held}))
    assert not [name for name in names(gone) if gpu_device(builders.uuid(1)) in name]
    assert set(names(kept)) - set(names(gone)) == {held}
    assert any("unhealthy (xid-79)" in note for note in gone.notes)


@settings(deadline=None)
@given(st.integers(0, 40), st.sampled_from([DEFAULT_34, GATES_34, DEFAULT_37]), st.randoms())
def test_build_pool_is_equal_when_inventory_is_shuffled(
    count: int, server: ApiCapability, order: random.Random
) -> None:
    inventory = node(count)
    gpus, health, able = list(inventory.gpus), list(inventory.health), list(abilities(inventory))
    for each in (gpus, health, able):
        order.shuffle(each)
    shuffled = builders.inventory(*gpus, health=tuple(health))
    publish = options(layout="2x25+5x10")
    expected = pool_of(inventory, server, publish=publish)
    assert pool_of(shuffled, server, publish=publish, able=tuple(able)) == expected
    assert len(set(names(expected))) == len(expected.devices)


@given(st.integers(0, 200))
def test_build_pool_fills_slices_evenly_when_there_are_many_devices(count: int) -> None:
    sizes = [len(devices) for devices in pool_of(node(count)).slices]
    assert sum(sizes) == 2 * count
    assert max(sizes) <= 64
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == max(1, -(-2 * count // 64))


def test_only_what_may_be_had_whole_is_checkpointable() -> None:
    two = node(2)
    told: dict[str, set[object]] = {}
    for mode, layout, server in (
        (STATIC, "GPU0=2x50", DEFAULT_34),
        (PublishMode.CONSUMABLE, "whole", GATES_34),
    ):
        layouts = layout.replace("GPU0", two.gpus[0].uuid)
        publish = replace(options(mode, layouts), checkpointable=True)
        pool = pool_of(two, server, publish=publish)
        for each in pool.devices:
            attributes = dict(each.attributes)
            told.setdefault(str(attributes["type"]), set()).add(attributes["checkpointable"])
    assert told == {"gpu": {True}, "slot": {False}, "monitor": {False}, "pad": {False}}
