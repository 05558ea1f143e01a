"""Attributes of devices."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.device import GpuFacts, GpuUuid, Tier
from dra_driver.model.pool import AttributeValue, Version
from dra_driver.model.share import ShareAbility
from dra_driver.plan.attributes import (
    Attributes,
    cut_text,
    gpu_attributes,
    pad_attributes,
    semver,
    typed,
)
from tests import builders

BARE = GpuFacts(uuid=builders.uuid(5), index=5, minor=5)


def attributes(gpu: GpuFacts, ability: ShareAbility | None = None) -> dict[str, AttributeValue]:
    found = gpu_attributes(gpu, ability, inventory=builders.inventory(gpu), checkpointable=False)
    assert list(found) == sorted(found)
    return dict(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("580.65.06", "580.65.6"),
        ("13.0", "13.0.0"),
        ("8", "8.0.0"),
        ("535.104.12.01", "535.104.12"),
        ("v1.2.3", "1.2.3"),
        ("570.133.20-grid", "570.133.20"),
        ("000.00.0", "0.0.0"),
        ("", None),
        ("N/A", None),
        ("\u0665.\u0661", None),
    ],
)
def test_semver_spells_versions_strictly_when_drivers_do_not(
    text: str, expected: str | None
) -> None:
    assert semver(text) == expected


def test_gpu_attributes_describe_the_board_when_all_is_known() -> None:
    gpu = builders.gpu(1)
    ability = ShareAbility(
        gpu=gpu.uuid, tier=Tier.STANDARD, burst_allowed=False, mps_multi_user=True
    )
    assert attributes(gpu, ability) == {
        "architecture": "Hopper",
        "brand": "Nvidia",
        "burstAllowed": False,
        "checkpointable": False,
        "cudaComputeCapability": Version("9.0.0"),
        "cudaDriverVersion": Version("12.8.0"),
        "driverVersion": Version("570.133.20"),
        "index": 1,
        "mpsMultiUser": True,
        "nvlinkDomain": "n0",
        "productName": "NVIDIA H100 80GB HBM3",
        "resource.kubernetes.io/numaNode": 0,
        "resource.kubernetes.io/pciBusID": "0000:1b:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:16",
        "smCount": 132,
        "tier": "standard",
        "uuid": str(gpu.uuid),
    }


def test_gpu_attributes_keep_own_names_when_nothing_is_known() -> None:
    found = attributes(BARE)
    known = attributes(builders.gpu(0))
    own = {name for name in known if "/" not in name}
    assert set(found) == own
    assert found["productName"] == found["brand"] == found["architecture"] == "unknown"
    assert found["cudaComputeCapability"] == Version("0.0.0")
    assert found["smCount"] == 0
    assert found["tier"] == "none"


def test_gpu_attributes_give_no_common_nvlink_domain_when_gpus_have_none() -> None:
    first = attributes(builders.gpu(0, nvlink_domain=None))
    second = attributes(builders.gpu(1, nvlink_domain=None))
    assert first["nvlinkDomain"] != second["nvlinkDomain"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("00000000:65:00.0", "0000:65:00.0"),
        ("0000:1A:00.0", "0000:1a:00.0"),
        ("10de0000:65:00.0", None),
        ("65:00.0", None),
    ],
)
def test_gpu_attributes_spell_pci_address_as_sysfs_when_nvml_did_not(
    address: str, expected: str | None
) -> None:
    found = attributes(builders.gpu(0, pci_bus_id=address))
    assert found.get("resource.kubernetes.io/pciBusID") == expected


@pytest.mark.parametrize("node", [None, -1])
def test_gpu_attributes_leave_numa_node_out_when_it_is_unknown(node: int | None) -> None:
    assert "resource.kubernetes.io/numaNode" not in attributes(builders.gpu(0, numa_node=node))


def test_gpu_attributes_never_cut_identities_when_they_are_long() -> None:
    long = "GPU-" + "a" * 80
    first = attributes(builders.gpu(0, uuid=GpuUuid(long + "1"), pcie_root="r" * 65))
    second = attributes(builders.gpu(0, uuid=GpuUuid(long + "2"), nvlink_domain="n" * 65))
    assert first["uuid"] != second["uuid"]
    assert second["nvlinkDomain"] == second["uuid"]
    assert "resource.kubernetes.io/pcieRoot" not in first


@given(st.text() | st.text(alphabet=st.characters(categories=["Cs"])))
def test_cut_text_fits_and_is_a_prefix_when_text_is_anything(text: str) -> None:
    cut = cut_text(text)
    assert len(cut.encode()) <= 64
    assert text.encode(errors="replace").decode().startswith(cut)


def test_pad_attributes_have_every_name_and_no_value_when_gpus_differ() -> None:
    devices: tuple[Attributes, ...] = (
        typed(tuple(attributes(builders.gpu(0)).items()), kind="gpu", sharing="Shared"),
        typed(tuple(attributes(BARE).items()), kind="gpu", sharing="Exclusive"),
    )
    pad = dict(pad_attributes("pad-00", devices))
    assert set(pad) == set(dict(devices[0]))
    assert (pad["type"], pad["sharing"], pad["uuid"]) == ("pad", "Exclusive", "pad-00")
    wanted = {value for each in devices for _, value in each if isinstance(value, str)}
    assert not wanted & {value for key, value in pad.items() if key != "sharing"}
