"""Whether a checkpoint fits a new container."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.manifest import Field, Manifest, ManifestGpu
from dra_driver.model.share import Sharing
from dra_driver.plan.compatibility import compatibility
from dra_driver.plan.manifest import manifest_json, manifest_text, read_manifest
from tests.builders import uuid


def board(number: int, **changes: Any) -> ManifestGpu:
    fields: dict[str, Any] = {
        "uuid": uuid(number),
        "product_name": "NVIDIA H100 80GB HBM3",
        "compute_capability": (9, 0),
        "memory_bytes": 81559 << 20,
        "held_memory_mib": 80000,
    }
    return ManifestGpu(**(fields | changes))


def manifest(*gpus: ManifestGpu, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "node": "node-a",
        "driver_version": "580.65.06",
        "cuda_version": "13.0",
        "library": "/usr/lib/libcuda.so.580.65.06",
        "gpus": gpus,
        "gpu_bytes": 1 << 30,
        "container_paths": ("/run/gpuslice/claim", "/usr/lib/libcuda.so.580.65.06"),
        "device_paths": ("/dev/nvidia0",),
    }
    return Manifest(**(fields | changes))


def test_checkpoint_fits_when_nothing_differs() -> None:
    verdict = compatibility(manifest(board(0)), manifest(board(0)))

    assert verdict.mismatches == ()
    assert [(each.old, each.new) for each in verdict.device_map] == [(uuid(0), uuid(0))]


@pytest.mark.parametrize(
    ("changes", "gpu", "field"),
    [
        ({"node": "node-b"}, {}, Field.NODE),
        ({}, {"product_name": "NVIDIA A100"}, Field.MODEL),
        ({"simulated": True}, {}, Field.MODEL),
        ({}, {"compute_capability": (8, 0)}, Field.CAPABILITY),
        ({"driver_version": "580.65.07"}, {}, Field.DRIVER),
        ({"library": "/usr/lib/libcuda.so.1"}, {}, Field.LIBRARY),
        ({}, {"sharing": Sharing.MPS}, Field.MODE),
        ({}, {"held_memory_mib": 79999}, Field.MEMORY),
        ({"container_paths": ("/run/gpuslice/claim",)}, {}, Field.MOUNTS),
        ({"device_paths": ("/dev/nvidia1",)}, {}, Field.DEVICES),
    ],
)
def test_checkpoint_does_not_fit_when_one_thing_differs(
    changes: dict[str, Any], gpu: dict[str, Any], field: Field
) -> None:
    verdict = compatibility(manifest(board(0)), manifest(board(0, **gpu), **changes))

    assert [each.field for each in verdict.mismatches] == [field]
    assert verdict.device_map == ()
    assert str(verdict.mismatches[0]).startswith(f"{field} was ")


def test_further_mounts_and_memory_do_no_harm() -> None:
    actual = manifest(
        board(0, held_memory_mib=90000),
        container_paths=(*manifest().container_paths, "/x"),
        device_paths=("/dev/nvidia0", "/dev/nvidia7"),
    )

    assert compatibility(manifest(board(0)), actual).mismatches == ()


@pytest.mark.parametrize(
    ("owned", "driver", "fits"),
    [(True, "580.65.06", True), (True, "575.57.08", False), (False, "580.65.06", False)],
)
def test_other_gpu_fits_when_the_driver_took_the_processes_off(
    *, owned: bool, driver: str, fits: bool
) -> None:
    recorded = manifest(board(0), driver_owned=owned, driver_version=driver)
    actual = manifest(board(5), driver_version=driver, device_paths=("/dev/nvidia5",))

    verdict = compatibility(recorded, actual)

    assert [each.field for each in verdict.mismatches] == ([] if fits else [Field.GPU])


def test_count_is_not_looked_at_when_one_claim_of_several_is() -> None:
    recorded, actual = manifest(board(0), board(1)), manifest(board(1))

    assert [each.field for each in compatibility(recorded, actual).mismatches] == [Field.COUNT]
    assert compatibility(recorded, actual, partial=True).mismatches == ()


def test_gpus_do_not_matter_when_their_state_is_not_part_of_it() -> None:
    recorded = manifest(board(0, sharing=Sharing.MPS), host_only=True)

    assert compatibility(recorded, manifest(board(3, product_name="other"))).mismatches == ()


@given(
    old=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    new=st.sets(st.integers(0, 5), min_size=1, max_size=4),
)
def test_device_map_names_every_old_gpu_once_and_no_new_one_twice(
    old: set[int], new: set[int]
) -> None:
    recorded = manifest(*map(board, sorted(old)), driver_owned=True, device_paths=())
    actual = manifest(*map(board, sorted(new)), device_paths=())

    verdict = compatibility(recorded, actual)

    if len(old) != len(new):
        assert verdict.device_map == ()
        return
    assert [each.old for each in verdict.device_map] == sorted(uuid(each) for each in old)
    assert {each.new for each in verdict.device_map} == {uuid(each) for each in new}
    for each in verdict.device_map:
        assert each.old == each.new or each.old not in {gpu.uuid for gpu in actual.gpus}


def test_manifest_is_read_as_it_was_written() -> None:
    made = manifest(board(0, sharing=Sharing.MPS), board(1, compute_capability=None))

    assert read_manifest(manifest_json(made)) == made
    assert manifest_text(made) == manifest_text(replace(made))
    with pytest.raises(ValueError, match="version 'v9'"):
        read_manifest(manifest_json(made) | {"version": "v9"})
