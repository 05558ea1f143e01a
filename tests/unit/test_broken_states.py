"""Health of GPUs on which a checkpoint or a restore left a container broken."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest

from dra_driver.errors import AdapterError
from dra_driver.loops.broken_states import BrokenStates
from dra_driver.model.checkpoint import GpuOwner, Kind, Operation, OperationState, Target
from dra_driver.model.cuda import CudaState, ProcessRef
from dra_driver.model.device import Inventory
from dra_driver.model.health import DeviceHealth, GpuEvent, HealthStatus
from dra_driver.model.owner import ProcessOwner
from dra_driver.model.record import Record
from dra_driver.plan.broken_state import broken_gpus, processes_left_broken, with_broken
from dra_driver.plan.health import XidPolicy, fold
from dra_driver.state.current import Current, joined
from tests.builders import gpu, inventory, ref, uuid
from tests.records import WHOLE, record
from tests.unit.operating import operation, process

TWO = inventory(gpu(0), gpu(1))
HELD = record(1, kind=WHOLE)
BROKEN = operation(
    CudaState.LOCKED,
    state=OperationState.FAILED_UNHEALTHY,
    target=Target(
        container_id="c1",
        container_name="main",
        pod_namespace="team-a",
        pod_name="trainer",
        init=process(7),
    ),
    text="process 100 cannot be brought back to the GPU",
)
SICK = DeviceHealth(
    uuid=uuid(0),
    status=HealthStatus.UNHEALTHY,
    message=(
        "Checkpoint op-1 left container main of pod team-a/trainer with broken GPU state: process"
        " 100 cannot be brought back to the GPU; delete its pod"
    ),
    cause="broken-state",
)


def found(
    *operations: Operation, records: tuple[Record, ...] = (HELD,), ended: tuple[int, ...] = ()
) -> tuple[DeviceHealth, ...]:
    return broken_gpus(operations, records, ended=frozenset(map(process, ended)))


def test_broken_gpus_are_those_of_the_claim_and_say_what_to_delete() -> None:
    assert found(BROKEN) == (SICK,)
    assert found(BROKEN, replace(BROKEN, id="op-2", kind=Kind.RESTORE)) == (SICK,)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            {"state": state}
            for state in OperationState
            if state is not OperationState.FAILED_UNHEALTHY
        ),
        {"owner": GpuOwner.NONE},
        {"acknowledged": True},
        {"boot_id": "another"},
        {"claims": (ref(2),)},
    ],
)
def test_broken_gpus_are_none_when_the_operation_is_another(changes: dict[str, object]) -> None:
    assert found(replace(BROKEN, **changes)) == ()  # type: ignore[arg-type]


def test_broken_gpus_are_none_when_the_claim_is_unprepared() -> None:
    assert found(BROKEN, records=(record(2, kind=WHOLE, on=1),)) == ()


def test_broken_gpus_last_until_the_last_process_of_the_container_has_ended() -> None:
    assert processes_left_broken((BROKEN, operation(CudaState.RUNNING))) == (process(0), process(7))
    assert found(BROKEN, ended=(0,)) == (SICK,)
    assert found(BROKEN, ended=(7,)) == (SICK,)
    assert found(BROKEN, ended=(0, 7)) == ()
    assert found(replace(BROKEN, processes=(), target=Target(container_id="c1"))) != ()


def test_with_broken_keeps_what_is_worse_and_speaks_of_known_gpus_alone() -> None:
    overlaid = with_broken(TWO, (SICK, replace(SICK, uuid=uuid(5))))
    assert overlaid == replace(TWO, health=(SICK, TWO.health[1]))
    lost = fold(TWO, (GpuEvent(uuid=uuid(0), xid=79),), XidPolicy())
    assert with_broken(lost, (SICK,)) == lost
    assert with_broken(None, (SICK,)) is None


class Node:
    """Operations, records and processes of a node; `problem`: none of them can be read."""

    def __init__(self) -> None:
        self.operations = {BROKEN.id: BROKEN}
        self.alive = {process(0).pid: process(0).started}
        self.problem = ""
        self.target: Current[tuple[DeviceHealth, ...]] = Current(())
        self.loop = BrokenStates(
            operations=self.read,
            records=lambda: (HELD,),
            owners=self,
            target=self.target,
            interval_s=0.01,
        )

    def read(self) -> tuple[Operation, ...]:
        if self.problem:
            raise AdapterError(self.problem)
        return tuple(self.operations.values())

    def owner(self, pid: int) -> ProcessOwner | None:
        started = self.alive.get(pid)
        return ProcessOwner(pid=pid, started=started) if started is not None else None


def test_loop_follows_operations_and_keeps_what_it_knew_when_they_cannot_be_read() -> None:
    node = Node()
    node.loop.look()
    assert node.target.get() == (SICK,)
    node.problem = "no disk"
    node.loop.look()
    assert node.target.get() == (SICK,)
    node.problem = ""
    node.alive = {process(0).pid: 1}  # another process of that number
    node.loop.look()
    assert node.target.get() == ()


def test_loop_is_seen_by_who_follows_the_inventory_and_stops() -> None:
    node, stop = Node(), Event()
    gpus: Current[Inventory | None] = Current(TWO)
    together = joined(gpus, node.target, with_broken)

    def ended() -> None:
        stop.set()

    together.follow(ended)
    node.loop.run(stop)
    seen = together.get()
    assert seen is not None
    assert seen.health == (SICK, TWO.health[1])


def test_processes_left_broken_are_told_by_their_start_too() -> None:
    twice = replace(BROKEN, target=Target(init=ProcessRef(pid=100, started=1)))
    assert processes_left_broken((twice,)) == (ProcessRef(pid=100, started=1), process(0))
