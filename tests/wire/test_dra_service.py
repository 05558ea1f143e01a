from __future__ import annotations

import re
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads

import grpc
import pytest

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1beta1_pb2 as v1beta1
from dra_api.kubelet import dra_v1beta1_pb2_grpc as v1beta1_grpc
from dra_driver.adapters.clock import SystemClock
from dra_driver.errors import AdapterError, ClaimRejected, NotReady, Reason
from dra_driver.kubelet.calls import Calls
from dra_driver.model.claim import ClaimRef
from tests.builders import ref
from tests.fakes.operations import prepared
from tests.fakes.recorder import FakeRecorder
from tests.waiting import eventually
from tests.wire.plugin import (
    TIMEOUT_S,
    channel,
    claims,
    prepare,
    prepare_later,
    running,
    unprepare,
)

GOOD, UNKNOWN, BAD, ALSO_GOOD = ref(1), ref(2), ref(3), ref(4)


def test_prepare_answers_devices_and_share_id_in_v1(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers[GOOD.uid] = prepared(GOOD.uid, share="share-1")
        device = prepare(opened, GOOD).claims[GOOD.uid].devices[0]
        assert list(device.request_names) == ["gpu"]
        assert device.pool_name == "node-a"
        assert device.device_name == f"gpu-{GOOD.uid[:8]}"
        assert list(device.cdi_device_ids) == [f"gpuslice.io/claim={GOOD.uid}"]
        assert device.share_id == "share-1"
        assert plugin.operations.calls == [("prepare", GOOD)]


def test_prepare_sends_no_share_id_when_there_is_none(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        device = prepare(opened, GOOD).claims[GOOD.uid].devices[0]
        assert not device.HasField("share_id")


def test_prepare_answers_the_same_without_share_id_in_v1beta1(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers[GOOD.uid] = prepared(GOOD.uid, share="share-1")
        answer = v1beta1_grpc.DRAPluginStub(opened).NodePrepareResources(
            v1beta1.NodePrepareResourcesRequest(claims=claims(GOOD, messages=v1beta1)), timeout=5
        )
        device = answer.claims[GOOD.uid].devices[0]
        assert list(device.cdi_device_ids) == [f"gpuslice.io/claim={GOOD.uid}"]
        assert not v1.Device.FromString(device.SerializeToString()).HasField("share_id")


def test_prepare_names_main_requests_once_when_subrequests_were_chosen(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers[GOOD.uid] = prepared(
            GOOD.uid, requests=("main/small", "main/big", "also")
        )
        device = prepare(opened, GOOD).claims[GOOD.uid].devices[0]
        assert list(device.request_names) == ["also", "main"]


def test_prepare_answers_each_claim_by_itself_when_some_fail(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers |= {
            UNKNOWN.uid: ClaimRejected(Reason.UNKNOWN_DEVICE, "no such device"),
            BAD.uid: ClaimRejected(Reason.INVALID_CONFIG, "bad config"),
        }
        first = prepare(opened, GOOD, UNKNOWN, BAD, ALSO_GOOD)
        assert {uid: answer.error for uid, answer in first.claims.items()} == {
            GOOD.uid: "",
            UNKNOWN.uid: "no such device",
            BAD.uid: "bad config",
            ALSO_GOOD.uid: "",
        }
        assert [len(first.claims[each.uid].devices) for each in (GOOD, ALSO_GOOD)] == [1, 1]
        assert prepare(opened, GOOD, UNKNOWN, BAD, ALSO_GOOD) == first
        assert plugin.recorder.counted("claim_operations_total", outcome="Ok") == 4
        assert plugin.recorder.counted("claim_operations_total", outcome="UnknownDevice") == 2


def test_prepare_runs_a_claim_once_when_its_uid_occurs_twice(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        answer = prepare(opened, GOOD, BAD, GOOD)
        assert sorted(answer.claims) == sorted([GOOD.uid, BAD.uid])
        assert sorted(plugin.operations.calls) == [("prepare", GOOD), ("prepare", BAD)]


def test_prepare_runs_claims_of_a_call_side_by_side(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gates = [plugin.operations.gate(each.uid) for each in (GOOD, BAD)]
        call = prepare_later(opened, GOOD, BAD)
        assert all(gate.entered.wait(TIMEOUT_S) for gate in gates)
        for gate in gates:
            gate.open.set()
        assert len(call.result(timeout=TIMEOUT_S).claims) == 2


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotReady(Reason.DEVICE_BUSY, ""), "DeviceBusy"),
        (NotReady(Reason.DEVICE_BUSY, "  \n "), "failed without a reason"),
        (AdapterError("disk full"), "cannot prepare claim team-a/claim-1: disk full"),
        (KeyError("x"), "cannot prepare claim team-a/claim-1 because of a bug .*KeyError: 'x'.*"),
        (RuntimeError(), "cannot prepare claim .*RuntimeError.*"),
        (ClaimRejected(Reason.INVALID_CONFIG, "a\nb \udcff"), "a b ?"),
    ],
)
def test_prepare_error_is_one_line_and_never_empty(root: Path, error: Exception, text: str) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers[GOOD.uid] = error
        said = prepare(opened, GOOD).claims[GOOD.uid].error
        assert said == text or re.fullmatch(text, said)


def test_prepare_error_is_cut_when_it_is_huge(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers[GOOD.uid] = ClaimRejected(Reason.INVALID_CONFIG, "x" * 10_000)
        said = prepare(opened, GOOD).claims[GOOD.uid].error
        assert len(said) == 4096
        assert said.endswith("x...")


@pytest.mark.parametrize("uid", ["", "../../etc/passwd", "a/b", ".", "x" * 129, "a\0b"])
def test_prepare_and_unprepare_refuse_a_uid_that_could_leave_its_folder(
    root: Path, uid: str
) -> None:
    odd = ClaimRef("team-a", "odd", uid)
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        assert "is not a Kubernetes UID" in prepare(opened, odd).claims[uid].error
        assert "is not a Kubernetes UID" in unprepare(opened, odd).claims[uid].error
        assert plugin.operations.calls == []


def test_unprepare_answers_each_claim_by_itself_when_one_fails(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        plugin.operations.answers[BAD.uid] = NotReady(Reason.STEP_FAILED, "still busy")
        answer = unprepare(opened, GOOD, BAD)
        assert {uid: each.error for uid, each in answer.claims.items()} == {
            GOOD.uid: "",
            BAD.uid: "still busy",
        }


def test_unprepare_does_not_wait_when_a_prepare_of_another_claim_is_held(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        held = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        assert unprepare(opened, BAD).claims[BAD.uid].error == ""
        assert not held.done()
        gate.open.set()
        held.result(timeout=TIMEOUT_S)


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
    busy = [ref(number) for number in range(100, 132)]
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gates = [plugin.operations.gate(each.uid) for each in busy]
        calls = [prepare_later(opened, each) for each in busy]
        eventually(lambda: len(plugin.operations.calls) == 32, TIMEOUT_S, "a full pool")
        late = prepare_later(opened, GOOD, timeout_s=0.2)
        assert late.exception(timeout=TIMEOUT_S) is not None
        for gate in gates:
            gate.open.set()
        for call in calls:
            call.result(timeout=TIMEOUT_S)
        assert len(prepare(opened, BAD).claims) == 1
        assert ("prepare", GOOD) not in plugin.operations.calls


def test_prepare_waits_when_the_node_is_not_ready_yet(root: Path) -> None:
    with running(root, ready=False) as plugin, channel(plugin.paths.dra) as opened:
        call = prepare_later(opened, GOOD)
        ready = Thread(target=plugin.late.set, args=(plugin.operations,))
        assert not call.done()
        ready.start()
        assert call.result(timeout=TIMEOUT_S).claims[GOOD.uid].error == ""
        ready.join()


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


def test_empty_call_answers_when_everything_else_waits(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        held = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        for _ in range(500):
            assert len(prepare(opened, timeout_s=1.0).claims) == 0
        assert plugin.operations.calls == [("prepare", GOOD)]
        gate.open.set()
        held.result(timeout=TIMEOUT_S)


def test_two_calls_for_one_claim_both_reach_the_operations(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        calls = [prepare_later(opened, GOOD) for _ in range(2)]
        eventually(lambda: len(plugin.operations.calls) == 2, TIMEOUT_S, "both calls")
        gate.open.set()
        first, second = (call.result(timeout=TIMEOUT_S) for call in calls)
        assert first == second


def test_threads_of_the_services_are_named(root: Path) -> None:

    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        gate = plugin.operations.gate(GOOD.uid)
        call = prepare_later(opened, GOOD)
        assert gate.entered.wait(TIMEOUT_S)
        names = {thread.name.partition("_")[0] for thread in enumerate_threads()}
        assert "dra" in names
        gate.open.set()
        call.result(timeout=TIMEOUT_S)
