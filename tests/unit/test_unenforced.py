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
from tests.fakes.supervisor import FakeSupervisor

TURNS = GpuShare(
    id="a", gpu=uuid(0), sharing=Sharing.TIME_SLICING, compute_percent=25, memory_mib=512
)
A, B = (replace(TURNS, id=name, sharing=Sharing.MPS) for name in ("b", "c"))
SHARES = UnenforcedShares(burst_allowed=False, supervisor=lambda: None)


def test_abilities_promise_nothing_and_still_let_gpus_be_shared() -> None:
    shared, split = SHARES.abilities(inventory(gpu(0), gpu(1, mig_enabled=True)))
    assert (shared.gpu, shared.tier, shared.burst_allowed) == (uuid(0), Tier.NONE, False)
    assert shared.reason
    assert split.tier is None


def test_apply_takes_shares_that_take_turns_and_no_others() -> None:
    SHARES.apply(uuid(0), (TURNS,), Deadline(0))
    SHARES.apply(uuid(0), (), Deadline(0))
    with pytest.raises(AdapterError, match="--sharing mps"):
        SHARES.apply(uuid(0), (TURNS, A), Deadline(0))


def test_apply_lets_shares_under_mps_leave_one_by_one_when_nobody_supervises_them() -> None:
    shares = UnenforcedShares(burst_allowed=False, supervisor=lambda: None)
    for kept in ((A, B), (A, B)):
        with pytest.raises(AdapterError, match="--sharing mps"):
            shares.apply(uuid(0), kept, Deadline(0))
    shares.apply(uuid(0), (A,), Deadline(0))
    with pytest.raises(AdapterError, match="--sharing mps"):
        shares.apply(uuid(0), (A,), Deadline(0))
    shares.apply(uuid(0), (), Deadline(0))


def test_apply_tells_who_supervises_when_there_are_shares_under_mps() -> None:
    supervisor = FakeSupervisor()
    shares = UnenforcedShares(burst_allowed=False, supervisor=lambda: supervisor)
    told = []
    for kept in ((), (TURNS,), (A, B), (B,), (TURNS,), (TURNS,)):
        shares.apply(uuid(0), kept, Deadline(60))
        told.append((supervisor.calls, supervisor.shares.get(uuid(0))))

    assert told == [(0, None), (0, None), (1, (A, B)), (2, (B,)), (3, (TURNS,)), (3, (TURNS,))]


def test_terminate_client_says_what_it_takes() -> None:
    with pytest.raises(AdapterError, match=r"process 7 .* --sharing mps only"):
        SHARES.terminate_client(uuid(0), 7, Deadline(0))
