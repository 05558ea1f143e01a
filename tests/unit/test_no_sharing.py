from __future__ import annotations

import pytest

from dra_driver.adapters.no_sharing import NoSharing
from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.share import GpuShare, Sharing, TimeSlice
from dra_driver.ports import ShareSupervisor, TimeSlicer
from tests import builders

_NEVER = Deadline(1e9)


def test_no_sharing_offers_every_gpu_whole_with_the_reason() -> None:
    supervisor: ShareSupervisor = NoSharing()
    found = supervisor.abilities(builders.inventory(builders.gpu(0), builders.gpu(1)))
    assert [each.gpu for each in found] == [builders.uuid(0), builders.uuid(1)]
    assert {each.tier for each in found} == {None}
    assert {each.reason for each in found} == {
        "sharing needs the MPS supervisor, which is not part of this version"
    }


def test_no_sharing_refuses_a_share_for_good() -> None:
    share = GpuShare(
        id="a",
        gpu=builders.uuid(0),
        sharing=Sharing.MPS,
        compute_percent=25,
        memory_mib=1024,
    )
    with pytest.raises(AdapterError, match="cannot be shared") as caught:
        NoSharing().apply(builders.uuid(0), (share,), _NEVER)
    assert caught.value.permanent


def test_no_sharing_frees_a_gpu_that_it_never_shared() -> None:
    NoSharing().apply(builders.uuid(0), (), _NEVER)


def test_no_sharing_refuses_any_time_slice_but_the_default() -> None:
    slicer: TimeSlicer = NoSharing()
    slicer.set_interval(builders.uuid(0), TimeSlice.DEFAULT)
    with pytest.raises(AdapterError, match="cannot be set to Long") as caught:
        slicer.set_interval(builders.uuid(0), TimeSlice.LONG)
    assert caught.value.permanent
