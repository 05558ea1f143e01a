from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_driver.adapters.clock import SystemClock
from dra_driver.kubelet.calls import Calls
from dra_driver.kubelet.dra_service import add_dra_services
from dra_driver.kubelet.operations import PREPARES_AT_ONCE
from dra_driver.kubelet.server import DRA_WORKERS
from tests.builders import ref
from tests.fakes.operations import FakeOperations
from tests.fakes.recorder import FakeRecorder
from tests.waiting import eventually
from tests.wire.plugin import (
    TIMEOUT_S,
    channel,
    claims,
    prepare,
    prepare_later,
    running,
    unprepare_later,
)

GOOD, BAD, ALSO_GOOD = ref(1), ref(3), ref(4)


def test_prepare_runs_to_its_end_when_the_kubelet_cancels(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        call = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        call.cancel()
        assert call.code() is grpc.StatusCode.CANCELLED
        gate.open.set()
        eventually(lambda: plugin.operations.finished, TIMEOUT_S, "the end of the prepare")
        assert prepare(opened, ALSO_GOOD).claims[ALSO_GOOD.uid].error == ""


def test_prepare_does_not_begin_when_the_kubelet_gave_up_while_it_was_queued(root: Path) -> None:
    busy = [ref(number) for number in range(100, 100 + DRA_WORKERS)]
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gates = [plugin.operations.gate(each.uid) for each in busy]
        calls = [prepare_later(opened, each) for each in busy[:PREPARES_AT_ONCE]]
        calls += [unprepare_later(opened, each) for each in busy[PREPARES_AT_ONCE:]]
        eventually(lambda: len(plugin.operations.calls) == DRA_WORKERS, TIMEOUT_S, "a full pool")
        late = prepare_later(opened, GOOD, timeout_s=0.2)
        assert late.exception(timeout=TIMEOUT_S) is not None
        for gate in gates:
            gate.open.set()
        for call in calls:
            call.result(timeout=TIMEOUT_S)
        assert len(prepare(opened, BAD).claims) == 1
        assert ("prepare", GOOD) not in plugin.operations.calls


def test_prepare_does_not_begin_a_claim_of_a_call_that_the_kubelet_gave_up() -> None:
    # gRPC drops a whole call that is given up in its queue; a claim may still wait within a call.
    operations, recorder = FakeOperations(), FakeRecorder()
    server = _Handlers()
    add_dra_services(
        cast("grpc.Server", server), operations, Calls(clock=SystemClock(), recorder=recorder)
    )
    service = server.handlers["k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"]
    request = v1.NodePrepareResourcesRequest(claims=claims(GOOD, BAD))
    answer = service["NodePrepareResources"].unary_unary(request, _GivenUp())
    assert all("gave up" in answer.claims[each.uid].error for each in (GOOD, BAD))
    assert operations.calls == []
    assert recorder.counted("claim_operations_total", outcome="OutOfTime") == 2


def test_prepare_waits_when_the_node_is_not_ready_yet(root: Path) -> None:
    with running(root, ready=False) as plugin, channel(plugin.paths.dra) as opened:
        call = prepare_later(opened, GOOD)
        eventually(lambda: plugin.server._calls._running, TIMEOUT_S, "the call")
        plugin.late.set(plugin.operations)
        assert call.result(timeout=TIMEOUT_S).claims[GOOD.uid].error == ""


def test_prepare_says_that_the_driver_starts_when_it_is_not_ready_in_time(root: Path) -> None:
    with running(root, ready=False) as plugin, channel(plugin.paths.dra) as opened:
        # 3.2 s of the kubelet leave 0.2 s of ours.
        said = prepare(opened, GOOD, timeout_s=3.2).claims[GOOD.uid].error
        assert "still starting" in said
        assert "team-a/claim-1" in said


@pytest.mark.parametrize(
    ("kubelet_s", "ours_s"),
    [
        (None, 42.0),
        (45.0, 42.0),
        (44.99, 41.99),
        (120.0, 42.0),
        (10.0, 7.0),
        (3.0, 0.0),
        (1.0, 0.0),
    ],
)
def test_deadline_is_the_kubelets_at_most_45_s_less_3_s(
    kubelet_s: float | None, ours_s: float
) -> None:
    class Clock(SystemClock):
        def monotonic_s(self) -> float:
            return 1000.0

    calls = Calls(clock=Clock(), recorder=FakeRecorder())
    assert calls.deadline(kubelet_s).at_s == pytest.approx(1000.0 + ours_s)


def test_operations_get_the_deadline_of_their_call(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        now_s = SystemClock().monotonic_s()
        prepare(opened, GOOD, timeout_s=20.0)
        (deadline,) = plugin.operations.deadlines
        assert deadline.at_s - now_s == pytest.approx(17.0, abs=1.0)


class _Handlers:
    """A server that only keeps what is registered."""

    def __init__(self) -> None:
        self.handlers: dict[str, Any] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        pass

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        self.handlers[service] = handlers


class _GivenUp:
    def is_active(self) -> bool:
        return False

    def time_remaining(self) -> float:
        return 30.0
