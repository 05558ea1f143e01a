from __future__ import annotations

import re
from pathlib import Path
from threading import enumerate as enumerate_threads

import pytest

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1beta1_pb2 as v1beta1
from dra_api.kubelet import dra_v1beta1_pb2_grpc as v1beta1_grpc
from dra_driver.errors import AdapterError, ClaimRejected, NotReady, Reason
from dra_driver.model.claim import ClaimRef
from tests.builders import ref
from tests.fakes.operations import prepared
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
