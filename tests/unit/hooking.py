"""The checkpoint hook without threads, over a node of fakes."""

from __future__ import annotations

from typing import Any

from dra_driver.checkpoint.engine import Engine
from dra_driver.checkpoint.handler import Handler
from dra_driver.checkpoint.keeper import Keeper
from dra_driver.checkpoint.table import OperationTable
from dra_driver.checkpoint.told_pods import ToldPods
from dra_driver.model.checkpoint import (
    Code,
    HookAnswer,
    HookPhase,
    HookRequest,
    Operation,
    OperationState,
    Outcome,
    Target,
    Trigger,
)
from dra_driver.model.cuda import CudaState
from dra_driver.model.deadline import Deadline
from dra_driver.model.record import Record
from dra_driver.model.share import CheckpointPolicy
from tests.builders import ref
from tests.fakes.checkpoint import FakeContainer, FakeHook, FakeNode, ref_of, with_claims
from tests.records import SHARE, WHOLE, record

CRIU = 900


def whole(number: int = 1, *, on: int = 0, **changes: Any) -> Record:
    """A record of a claim for a whole GPU that allows checkpoints."""
    fields = {"checkpoint": CheckpointPolicy.BEST_EFFORT} | changes
    return with_claims((record(number, kind=WHOLE, on=on),), **fields)[0]


def share(number: int = 1, **changes: Any) -> Record:
    fields = {"checkpoint": CheckpointPolicy.BEST_EFFORT} | changes
    return with_claims((record(number, kind=SHARE),), **fields)[0]


def container(
    *cuda: CudaState, name: str = "c1", claim: int | None = 1, first_pid: int = 100
) -> FakeContainer:
    """A container with a first process that uses no CUDA, and one for each of `cuda`."""
    pids = list(range(first_pid, first_pid + len(cuda) + 1))
    return FakeContainer(
        id=name,
        pids=pids,
        claims=(ref(claim).uid,) if claim is not None else (),
        cuda=dict(zip(pids[1:], cuda, strict=True)),
    )


class Rig:
    """A hook, and what its restart leaves of it."""

    def __init__(self, *containers: FakeContainer, **changes: Any) -> None:
        self.node = FakeNode(*containers)
        self.node.runtimes.add(CRIU)
        self.fakes = FakeHook(self.node, **({"records": (whole(),)} | changes))
        self.start()

    def start(self) -> None:
        """Begin anew from what is stored, as after kill -9."""
        table = OperationTable(self.fakes.store)
        table.load()
        self.engine = Engine(self.fakes.world(), table)
        self.keeper = Keeper(self.engine)
        self.told_pods = ToldPods(self.engine.world)
        self.handler = Handler(self.engine, self.told_pods, kick=lambda: None)

    def call(self, request: HookRequest) -> HookAnswer:
        return self.handler.call(request, Deadline(self.fakes.clock.monotonic_s() + 30.0))

    def abort(self, operation_id: str) -> HookAnswer:
        return self.handler.abort(operation_id, Deadline(self.fakes.clock.monotonic_s() + 30.0))

    def acknowledge(self, operation_id: str) -> HookAnswer:
        deadline = Deadline(self.fakes.clock.monotonic_s() + 30.0)
        return self.handler.abort(operation_id, deadline, acknowledge=True)

    def keep(self, *, wait_s: float = 0.0) -> None:
        """Let time pass, and the keeper look at all that is under way."""
        self.fakes.clock.advance(wait_s)
        for each in self.engine.table.under_way():
            self.keeper.tend(each.id)

    def operation(self, operation_id: str = "op-1") -> Operation:
        found = self.engine.table.get(operation_id)
        assert found is not None, f"there is no operation {operation_id}"
        return found


def pre(operation_id: str = "op-1", **changes: Any) -> HookRequest:
    """A controller's PreCheckpoint of container c1."""
    fields: dict[str, Any] = {
        "operation_id": operation_id,
        "phase": HookPhase.PRE_CHECKPOINT,
        "trigger": Trigger.CONTROLLER,
        "target": Target(container_id="c1"),
    }
    return HookRequest(**(fields | changes))


def post(operation_id: str = "op-1", **changes: Any) -> HookRequest:
    fields = {"phase": HookPhase.POST_CHECKPOINT, "outcome": Outcome.SUCCEEDED}
    return pre(operation_id, **(fields | changes))


def by_criu(operation_id: str = "criu-1", *, runner: int = CRIU, **changes: Any) -> HookRequest:
    """CRIU's pre-dump of container c1."""
    fields = {"trigger": Trigger.CRIU_SCRIPT, "runner": ref_of(runner)}
    target = Target(container_id="c1", init=ref_of(100))
    return pre(operation_id, **({"target": target} | fields | changes))


def taken(rig: Rig, **changes: Any) -> None:
    """Take checkpoint op-1 of container c1, which is gone then."""
    assert rig.call(pre(**changes)).code is Code.OK
    rig.call(post())
    del rig.node.containers["c1"]
    rig.keep()
    assert rig.operation("op-1").state is OperationState.DONE


def restore(operation_id: str = "op-2", **changes: Any) -> HookRequest:
    fields: dict[str, Any] = {
        "operation_id": operation_id,
        "phase": HookPhase.PRE_RESTORE,
        "trigger": Trigger.OCI_HOOK,
        "target": Target(container_id="c2"),
        "claims": (ref(2).uid,),
    }
    return HookRequest(**(fields | changes))


def restored(operation_id: str = "op-2", **changes: Any) -> HookRequest:
    fields: dict[str, Any] = {
        "phase": HookPhase.POST_RESTORE,
        "trigger": Trigger.CRIU_SCRIPT,
        "outcome": Outcome.SUCCEEDED,
        "claims": (),
    }
    return restore(operation_id, **(fields | changes))


def new_container(rig: Rig, *cuda: CudaState) -> None:
    rig.node.containers["c2"] = container(*cuda, name="c2", claim=2, first_pid=200)
