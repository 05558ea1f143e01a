"""Shares of a node whose GPUs are time-sliced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.adapters.unenforced import UnenforcedShares
from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import Tier
from dra_driver.model.share import GpuShare, Sharing
from tests.builders import gpu, inventory, uuid

TURNS = GpuShare(
    id="a", gpu=uuid(0), sharing=Sharing.TIME_SLICING, compute_percent=25, memory_mib=512
)
SHARES = UnenforcedShares(burst_allowed=False)


def test_abilities_promise_nothing_and_still_let_gpus_be_shared() -> None:
    shared, split = SHARES.abilities(inventory(gpu(0), gpu(1, mig_enabled=True)))
    assert (shared.gpu, shared.tier, shared.burst_allowed) == (uuid(0), Tier.NONE, False)
    assert shared.reason
    assert split.tier is None


def test_apply_takes_shares_that_take_turns_and_no_others() -> None:
    SHARES.apply(uuid(0), (TURNS,), Deadline(0))
    SHARES.apply(uuid(0), (), Deadline(0))
    with pytest.raises(AdapterError, match="--sharing mps"):
        SHARES.apply(uuid(0), (TURNS, replace(TURNS, id="b", sharing=Sharing.MPS)), Deadline(0))


def test_terminate_client_says_what_it_takes() -> None:
    with pytest.raises(AdapterError, match=r"process 7 .* --sharing mps only"):
        SHARES.terminate_client(uuid(0), 7, Deadline(0))
