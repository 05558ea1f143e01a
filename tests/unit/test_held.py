"""What claims hold keeps its GPU's devices as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from dra_driver.app.pool_builder import PoolBuilder
from dra_driver.errors import AdapterError
from dra_driver.model.capability import ApiCapability
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory, Tier
from dra_driver.model.pool import Device
from dra_driver.model.record import Record, Use
from dra_driver.model.share import Expose, GpuShare, ShareAbility, Sharing
from dra_driver.model.steps import EnsureShare
from dra_driver.plan.held import held_whole, kept_shared
from dra_driver.plan.layouts import parse_layouts
from dra_driver.plan.naming import gpu_device
from dra_driver.plan.slices import PublishMode, PublishOptions
from tests import records
from tests.builders import DRIVER, NODE, gpu, inventory, uuid
from tests.fakes.clock import FakeClock

KEEPS_ALL = ApiCapability(major=1, minor=36, git_version="", consumable=True, taints=True)
TWO = inventory(gpu(0, mps_control_only=True), gpu(1, mps_control_only=True))
NONE = tuple(
    ShareAbility(gpu=each.uuid, tier=None, reason="a foreign daemon runs") for each in TWO.gpus
)
SHARE = records.record(1)
WHOLE = records.record(2, kind=records.WHOLE, on=1)
ALL_OF_A_SHAREABLE = replace(
    records.record(3, kind=records.WHOLE),
    uses=(replace(SHARE.uses[0], use=Use.EXCLUSIVE),),
)
SLOT = replace(SHARE, uses=(replace(SHARE.uses[0], use=Use.SLOT, share_id=None),))


class Supervisor:
    """Says what a test says of what it can promise."""

    def __init__(self) -> None:
        self.answer: tuple[ShareAbility, ...] | AdapterError = AdapterError("mpsd is away")

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        raise NotImplementedError

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        return partial(self.apply, gpu, shares, deadline)

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        if isinstance(self.answer, AdapterError):
            raise self.answer
        return self.answer


class Bench:
    def __init__(self, *held: Record, mode: PublishMode = PublishMode.AUTO) -> None:
        self.supervisor = Supervisor()
        self.clock = FakeClock()
        self.held = held
        self.builder = PoolBuilder(
            self.supervisor,
            options=PublishOptions(
                driver=DRIVER, node=NODE, mode=mode, layouts=parse_layouts("4x25")
            ),
            held=lambda: self.held,
            burst_allowed=True,
            clock=self.clock,
            patience_s=30.0,
        )

    def devices(self) -> dict[str, Device]:
        pool = self.builder.build(TWO, KEEPS_ALL)
        return {device.name: device for device in pool.devices}

    def shareable(self) -> tuple[bool, bool]:
        devices = self.devices()
        return devices[gpu_device(uuid(0))].shareable, devices[gpu_device(uuid(1))].shareable


def offered(*tiers: Tier) -> tuple[ShareAbility, ...]:
    return tuple(
        ShareAbility(gpu=each.uuid, tier=tier) for each, tier in zip(TWO.gpus, tiers, strict=True)
    )


def test_the_first_pool_waits_for_the_supervisor_and_then_offers_gpus_whole() -> None:
    bench = Bench()
    with pytest.raises(AdapterError, match="mpsd is away"):
        bench.devices()
    bench.clock.advance(31)
    assert bench.shareable() == (False, False)
    (note, _) = bench.builder.build(TWO, KEEPS_ALL).notes
    assert "offered whole" in note
    assert "mpsd is away" in note


def test_what_was_promised_stays_when_the_supervisor_goes_away() -> None:
    bench = Bench()
    bench.supervisor.answer = offered(Tier.STANDARD, Tier.COOPERATIVE)
    before = bench.devices()
    bench.supervisor.answer = AdapterError("mpsd is away")
    bench.clock.advance(1000)
    assert bench.devices() == before
    assert bench.shareable() == (True, True)


@pytest.mark.parametrize("record", [SHARE, ALL_OF_A_SHAREABLE])
def test_a_gpu_held_in_shares_stays_shareable_when_nothing_can_be_promised(record: Record) -> None:
    bench = Bench(record, WHOLE)
    bench.clock.advance(31)
    assert bench.shareable() == (True, False)
    bench.supervisor.answer = NONE
    assert bench.shareable() == (True, False)


def test_a_gpu_held_in_slots_keeps_its_slots_when_nothing_can_be_promised() -> None:
    bench = Bench(SLOT, mode=PublishMode.STATIC)
    bench.supervisor.answer = NONE
    names = set(bench.devices())
    assert gpu_device(uuid(0)) not in names
    assert gpu_device(uuid(1)) in names


@pytest.mark.parametrize("mode", [PublishMode.CONSUMABLE, PublishMode.STATIC])
def test_a_gpu_held_whole_stays_whole_when_sharing_becomes_possible(mode: PublishMode) -> None:
    bench = Bench(WHOLE, mode=mode)
    bench.supervisor.answer = offered(Tier.STANDARD, Tier.STANDARD)
    devices = bench.devices()
    assert not devices[gpu_device(uuid(1))].shareable
    other = devices.get(gpu_device(uuid(0)))
    assert other is None if mode is PublishMode.STATIC else other is not None and other.shareable
    bench.held = ()
    later = bench.devices().get(gpu_device(uuid(1)))
    assert later is None if mode is PublishMode.STATIC else later is not None and later.shareable


@pytest.mark.parametrize(
    ("changes", "tier", "expose"),
    [
        ({}, Tier.STANDARD, Expose.CONTROL),
        ({"expose": Expose.FOLDER}, Tier.COOPERATIVE, Expose.FOLDER),
        ({"sharing": Sharing.TIME_SLICING}, Tier.NONE, Expose.CONTROL),
    ],
)
def test_kept_shared_takes_the_tier_from_what_containers_see(
    changes: dict[str, object], tier: Tier, expose: Expose
) -> None:
    (step,) = (each for each in SHARE.steps if isinstance(each, EnsureShare))
    share = replace(step.share, **changes)  # type: ignore[arg-type]
    held = replace(SHARE, steps=(EnsureShare(share=share),))
    kept, other = kept_shared(TWO, NONE, (held,))
    assert (kept.tier, kept.expose, kept.reason) == (tier, expose, "a foreign daemon runs")
    assert other == NONE[1]


def test_kept_shared_believes_what_sharing_promises() -> None:
    abilities = offered(Tier.COOPERATIVE, Tier.STANDARD)
    assert kept_shared(TWO, abilities, (SHARE, WHOLE)) == abilities


def test_held_whole_leaves_out_whoever_holds_a_share_or_watches() -> None:
    monitor = replace(WHOLE, uses=(replace(WHOLE.uses[0], use=Use.MONITOR, gpu=uuid(0)),))
    assert held_whole((SHARE, ALL_OF_A_SHAREABLE, SLOT, monitor)) == frozenset()
    assert held_whole((WHOLE,)) == {uuid(1)}
