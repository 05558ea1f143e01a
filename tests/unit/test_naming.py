from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.device import GpuUuid
from dra_driver.plan import naming

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
REAL = GpuUuid("GPU-6f0e2a31-5c1d-4f0e-9a1b-0123456789ab")


def test_gpu_device_keeps_the_uuid_readable() -> None:
    assert naming.gpu_device(REAL) == "gpu-6f0e2a31-5c1d-4f0e-9a1b-0123456789ab"
    assert naming.slot_device(REAL, compute_percent=25, number=3) == (
        "gpu-6f0e2a31-5c1d-4f0e-9a1b-0123456789ab-slot-25-3"
    )


@pytest.mark.parametrize(
    "name",
    [
        naming.gpu_device(REAL),
        naming.monitor_device(REAL),
        naming.slot_device(REAL, compute_percent=25, number=3),
    ],
)
def test_readable_uuid_is_the_one_that_a_device_was_named_after(name: str) -> None:
    assert naming.readable_uuid(name) == REAL


@given(st.text(min_size=1, max_size=100))
def test_device_names_are_dns_labels_whatever_the_uuid(text: str) -> None:
    uuid = GpuUuid(text)
    names = (
        naming.gpu_device(uuid),
        naming.monitor_device(uuid),
        naming.slot_device(uuid, compute_percent=100, number=99),
    )
    assert all(DNS_LABEL.fullmatch(name) for name in names), names
    assert len(set(names)) == len(names)


@given(st.lists(st.text(min_size=1, max_size=60), min_size=2, max_size=6, unique=True))
def test_gpu_devices_differ_when_uuids_differ(texts: list[str]) -> None:
    assert len({naming.gpu_device(GpuUuid(text)) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "twins", [("GPU-abc", "GPU-ABC"), ("GPU-a.b", "GPU-a-b"), ("GPU-a", "gpu-a"), ("GPU-", "-")]
)
def test_gpu_devices_differ_when_uuids_differ_only_in_spelling(twins: tuple[str, str]) -> None:
    first, second = twins
    assert naming.gpu_device(GpuUuid(first)) != naming.gpu_device(GpuUuid(second))


def test_pads_are_many_enough_for_every_index_of_a_claim() -> None:
    names = [naming.pad_device(number) for number in range(naming.PAD_COUNT)]
    assert len(set(names)) == 32
    assert names == sorted(names)


def test_spec_name_starts_with_the_prefix_of_its_driver() -> None:
    name = naming.spec_name("gpuslice.io", "c0ffee")
    assert name == "gpuslice.io-claim_c0ffee"
    assert name.startswith(naming.spec_prefix("gpuslice.io"))
    assert naming.cdi_kind("gpuslice.io") == "gpuslice.io/claim"
