"""What the state of sharing means for GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_driver.model.health import DeviceHealth, GpuEvent, HealthStatus
from dra_driver.model.mps import GpuSharing, MpsPhase, Proof
from dra_driver.plan.health import XidPolicy, fold, with_sharing
from dra_driver.plan.sharing_news import abilities_differ, losses
from dra_driver.state.current import Current, joined
from tests.builders import gpu, inventory, uuid

TWO = inventory(gpu(0), gpu(1))
SHARED = GpuSharing(gpu=uuid(1), phase=MpsPhase.ACTIVE, shares=("a", "b"), daemon_pid=7)


def health(state: GpuSharing) -> DeviceHealth:
    overlaid = with_sharing(TWO, (state,))
    assert overlaid is not None
    assert overlaid.health[0] == TWO.health[0]
    return overlaid.health[1]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, HealthStatus.HEALTHY),
        ({"phase": MpsPhase.FAULT}, HealthStatus.UNHEALTHY),
        ({"phase": MpsPhase.FAULT, "shares": ()}, HealthStatus.HEALTHY),
        ({"phase": MpsPhase.STARTING}, HealthStatus.HEALTHY),
        ({"phase": MpsPhase.STARTING, "restarts": 1}, HealthStatus.UNHEALTHY),
        ({"phase": MpsPhase.ACTIVE, "restarts": 1}, HealthStatus.HEALTHY),
        ({"phase": MpsPhase.DRAINING, "restarts": 1}, HealthStatus.HEALTHY),
    ],
)
def test_with_sharing_marks_gpus_whose_shares_are_not_enforced(
    changes: dict[str, object], status: HealthStatus
) -> None:
    found = health(replace(SHARED, **changes))  # type: ignore[arg-type]
    assert found.status is status
    assert found.cause == ("mps-fault" if status is HealthStatus.UNHEALTHY else "")


def test_with_sharing_says_what_the_supervisor_said() -> None:
    found = health(replace(SHARED, phase=MpsPhase.FAULT, message="the daemon\nends at once"))
    assert found.message == "Shares of this GPU are not enforced now: the daemon ends at once"


def test_with_sharing_keeps_the_boards_own_fault() -> None:
    sick = fold(TWO, (GpuEvent(uuid=uuid(1), xid=79),), XidPolicy())
    assert with_sharing(sick, (replace(SHARED, phase=MpsPhase.FAULT),)) == sick


def test_with_sharing_does_not_speak_of_gpus_that_are_not_there() -> None:
    assert with_sharing(TWO, (replace(SHARED, gpu=uuid(5), phase=MpsPhase.FAULT),)) == TWO
    assert with_sharing(None, (SHARED,)) is None


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ({}, {}, 0),
        ({}, {"restarts": 2}, 2),
        ({}, {"restarts": 1, "daemon_pid": 8}, 1),
        ({"restarts": 1}, {"restarts": 1, "daemon_pid": None}, 0),
        ({"restarts": 1, "daemon_pid": None}, {"restarts": 1, "daemon_pid": 8}, 0),
        # The supervisor was started anew beside the same daemon, and beside another one.
        ({"restarts": 3}, {}, 0),
        ({"restarts": 3}, {"daemon_pid": 8}, 1),
        # Given back and taken again: nobody of before is left.
        ({}, {"shares": ("c",), "daemon_pid": 8}, 0),
        ({"shares": (), "daemon_pid": None}, {"restarts": 0}, 0),
    ],
)
def test_losses_counts_daemons_that_clients_were_lost_with(
    before: dict[str, object], after: dict[str, object], count: int
) -> None:
    found = losses(
        (replace(SHARED, **before),),  # type: ignore[arg-type]
        (replace(SHARED, **after),),  # type: ignore[arg-type]
    )
    assert found == ({uuid(1): count} if count else {})


def test_losses_tells_nothing_of_a_gpu_that_was_not_known() -> None:
    assert losses((), (replace(SHARED, restarts=2),)) == {}


def test_abilities_differ_when_a_promise_changes_only() -> None:
    assert not abilities_differ((SHARED,), (replace(SHARED, clients=3, shares=()),))
    assert abilities_differ((SHARED,), (replace(SHARED, proof=Proof(control_only=True)),))
    assert abilities_differ((SHARED,), (replace(SHARED, refusal="a foreign daemon runs"),))
    assert abilities_differ((), (SHARED,))


def test_joined_changes_with_either_side_and_wakes_for_real_changes_only() -> None:
    first, second = Current(1), Current(10)
    both = joined(first, second, lambda one, other: (one + other) // 10)
    assert both.snapshot() == (0, 1)
    second.set(30)
    assert both.snapshot() == (1, 3)
    first.set(2)
    assert both.snapshot() == (1, 3)
    first.set(10)
    assert both.snapshot() == (2, 4)
