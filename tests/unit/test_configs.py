from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import ClaimRejected, Reason
from dra_driver.model.config import GpuConfig, SliceConfig
from dra_driver.model.share import Sharing, TimeSlice
from dra_driver.plan.configs import DeviceKind, applied_configs
from tests.builders import claim_json, share_result
from tests.unit.planning import config, device, parameters, parsed

SHARE, SLOT, WHOLE = DeviceKind.SHARE, DeviceKind.SLOT, DeviceKind.WHOLE
MONITOR, ADMIN = DeviceKind.MONITOR, DeviceKind.ADMIN


def applied(kinds: dict[str, DeviceKind], *entries: dict[str, Any]) -> dict[str, Any]:
    results = [share_result(device(), request=name, share=i) for i, name in enumerate(kinds)]
    claim = parsed(claim_json(results=results, config=list(entries)))
    found = applied_configs(claim, tuple(kinds.values()))
    return {name: each and each.value for name, each in zip(kinds, found, strict=True)}


def refusal(kinds: dict[str, DeviceKind], *entries: dict[str, Any]) -> str:
    with pytest.raises(ClaimRejected) as caught:
        applied(kinds, *entries)
    assert caught.value.reason is Reason.INVALID_CONFIG
    return str(caught.value)


PRECEDENCE = [
    config(parameters(sharing="MPS", maxCompute=25), source="FromClass"),
    config(parameters(sharing="MPS", maxCompute=50), "a"),
    config({"not": "ours"}, driver="nic.example"),
    config(parameters(sharing="TimeSlicing"), "b"),
    config(parameters(sharing="MPS", maxCompute=60), "a"),
]


@given(st.integers(0, 4))
def test_applied_configs_let_later_win_and_class_yield_wherever_the_class_stands(at: int) -> None:
    entries = [*PRECEDENCE[1:]]
    entries.insert(at, PRECEDENCE[0])
    assert applied({"a": SHARE, "b": SHARE, "c": SHARE}, *entries) == {
        "a": SliceConfig(sharing=Sharing.MPS, max_compute_percent=60),
        "b": SliceConfig(sharing=Sharing.TIME_SLICING),
        "c": SliceConfig(sharing=Sharing.MPS, max_compute_percent=25),
    }


def test_applied_configs_cover_subrequests_by_the_main_name() -> None:
    kinds = {"gpu/big": SHARE, "other/big": SHARE}
    by_main = config(parameters(maxCompute=5), "gpu")
    by_sub = config(parameters(maxCompute=6), "other/big")
    not_chosen = config(parameters(maxCompute=7), "gpu/small")
    assert applied(kinds, by_main, by_sub, not_chosen) == {
        "gpu/big": SliceConfig(max_compute_percent=5),
        "other/big": SliceConfig(max_compute_percent=6),
    }


def test_applied_configs_skip_misfits_when_an_entry_covers_all_and_fits_some() -> None:
    slices = config(parameters(maxCompute=5))
    gpus = config(parameters("GpuConfig", timeSlice="Long"))
    kinds = {"share": SHARE, "slot": SLOT, "whole": WHOLE, "look": MONITOR}
    assert applied(kinds, slices, gpus) == {
        "share": SliceConfig(max_compute_percent=5),
        "slot": SliceConfig(max_compute_percent=5),
        "whole": GpuConfig(time_slice=TimeSlice.LONG),
        "look": None,
    }


WHOLE_WAY_OUT = (
    "use kind GpuConfig, or ask for a share: name compute or memory in the request's "
    "capacity.requests"
)


@pytest.mark.parametrize(
    ("kind", "entry", "text"),
    [
        (
            WHOLE,
            config(parameters(), "gpu"),
            f"holds a whole GPU (device {device()}): {WHOLE_WAY_OUT}",
        ),
        (WHOLE, config(parameters()), WHOLE_WAY_OUT),
        (
            SHARE,
            config(parameters("GpuConfig"), "gpu"),
            f"holds a share of a GPU (device {device()}): use kind SliceConfig, or name only",
        ),
        (SLOT, config(parameters("GpuConfig")), "holds a slot of a GPU"),
        (MONITOR, config(parameters("GpuConfig"), "gpu"), "it takes no config: name the other"),
        (MONITOR, config(parameters()), "it takes no config"),
    ],
)
def test_applied_configs_reject_when_the_kind_fits_no_device(
    kind: DeviceKind, entry: dict[str, Any], text: str
) -> None:
    found = refusal({"gpu": kind}, entry)
    assert found.startswith("claim team-a/claim-1: claim config 0, kind ")
    assert "does not fit request gpu, which holds" in found
    assert text in found


def test_applied_configs_reject_when_a_named_request_does_not_fit_beside_one_that_does() -> None:
    entry = config(parameters(), "a", "b")
    assert "does not fit request b" in refusal({"a": SHARE, "b": WHOLE}, entry)


def test_applied_configs_are_not_applied_when_access_is_for_admins() -> None:
    entries = (config(parameters(), "gpu"), config(parameters("GpuConfig")))
    assert applied({"gpu": ADMIN}, *entries) == {"gpu": None}


def test_applied_configs_reject_when_an_entry_cannot_be_decoded_even_if_it_loses() -> None:
    bad = config(parameters(maxCompute=0), source="FromClass")
    text = refusal({"gpu": SHARE}, bad, config(parameters(), "gpu"))
    assert text == (
        "claim team-a/claim-1: class config 0: field maxCompute: 0 is not supported: write a whole "
        "number from 1 to 100, without quotes"
    )


def test_applied_configs_are_none_when_the_claim_has_no_results() -> None:
    assert applied({}, config(parameters(maxCompute=0))) == {}
