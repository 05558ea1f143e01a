from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import ClaimError, ClaimRejected, NotReady, Reason
from dra_driver.model.device import GpuUuid, Inventory, UnreadableGpu
from dra_driver.plan.naming import PAD_COUNT, gpu_device, monitor_device, pad_device, slot_device
from dra_driver.plan.targets import GpuTarget, MonitorTarget, PadTarget, SlotTarget, resolve
from tests.builders import gpu, inventory, uuid
from tests.unit.planning import TWO_GPUS, device


def refusal(name: str, node: Inventory = TWO_GPUS) -> ClaimError:
    with pytest.raises(ClaimError) as caught:
        resolve(name, node)
    return caught.value


@pytest.mark.parametrize("number", [0, 1])
def test_resolve_finds_each_kind_of_device_when_its_gpu_is_there(number: int) -> None:
    facts = TWO_GPUS.gpus[number]
    assert resolve(gpu_device(facts.uuid), TWO_GPUS) == GpuTarget(gpu=facts)
    assert resolve(monitor_device(facts.uuid), TWO_GPUS) == MonitorTarget(gpu=facts)


@given(st.text(max_size=70), st.integers(1, 100), st.data())
def test_resolve_reads_slot_names_back_when_the_uuid_is_any(
    text: str, percent: int, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, min(99, 100 // percent - 1)))
    facts = gpu(3, uuid=GpuUuid(text))
    name = slot_device(facts.uuid, compute_percent=percent, number=number)
    expected = SlotTarget(gpu=facts, compute_percent=percent, number=number)
    assert resolve(name, inventory(gpu(0), facts)) == expected


@pytest.mark.parametrize("number", [0, PAD_COUNT - 1])
def test_resolve_knows_pads(number: int) -> None:
    assert resolve(pad_device(number), inventory()) == PadTarget()


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpu-0",
        device(7),
        pad_device(PAD_COUNT),
        f"{device()}-slot-25-4",
        f"{device()}-slot-025-0",
        f"{device()}-slot-25",
        f"{device()}-slot-101-0",
        f"{device()}-slot-25-00",
        f"{device()}-monitor-0",
        "-slot-25-0",
    ],
)
def test_resolve_rejects_when_no_gpu_has_such_a_device(name: str) -> None:
    error = refusal(name)
    assert isinstance(error, ClaimRejected)
    assert error.reason is Reason.UNKNOWN_DEVICE
    assert str(error) == (
        f"device {name} does not exist on this node (its GPUs: {device(0)}, {device(1)}): delete "
        "the pod and its claim, so that they are scheduled anew"
    )


def test_resolve_is_not_ready_when_the_gpu_is_unreadable_now() -> None:
    lost = UnreadableGpu(label=uuid(7), text="memory: GPU_IS_LOST: reset the GPU")
    node = inventory(gpu(0), unreadable=(lost,))
    for name in (device(7), f"{device(7)}-slot-50-1"):
        error = refusal(name, node)
        assert isinstance(error, NotReady)
        assert error.reason is Reason.DEVICE_LOST
        assert str(error) == (
            f"device {name}: its GPU {uuid(7)} cannot be read now: memory: GPU_IS_LOST: reset the "
            "GPU"
        )
    assert isinstance(refusal(device(8), node), ClaimRejected)


def test_resolve_is_not_ready_when_a_gpu_without_name_may_be_it() -> None:
    lost = UnreadableGpu(label="index 3", text="handle: UNKNOWN")
    error = refusal(device(7), inventory(gpu(0), unreadable=(lost,)))
    assert isinstance(error, NotReady)
    assert "it may be one that cannot (index 3: handle: UNKNOWN)" in str(error)


def test_resolve_is_not_ready_when_the_gpu_is_in_mig_mode() -> None:
    error = refusal(device(), inventory(gpu(0, mig_enabled=True)))
    assert isinstance(error, NotReady)
    assert "is in MIG mode, which is not supported: switch it off" in str(error)


def test_resolve_is_not_ready_when_no_gpu_is_found_at_all() -> None:
    with pytest.raises(NotReady, match=f"device {device(0)}: no GPU is found on this node now"):
        resolve(device(0), inventory())
