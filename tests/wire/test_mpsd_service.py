from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import pytest

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_driver.errors import AdapterError, NotReady, Reason
from dra_driver.model.mps import GpuSharing, MpsPhase, Proof
from dra_driver.model.share import Expose
from dra_driver.mps import service
from tests.builders import uuid
from tests.fakes.sharing import FakeSharing
from tests.waiting import eventually
from tests.wire.mpsd import serving, share, stub


def _request(**changes: Any) -> mpsd.ApplyRequest:
    fields: dict[str, Any] = {
        "id": "share-1",
        "compute_percent": 25,
        "memory_mib": 6144,
        "expose": mpsd.EXPOSE_CONTROL,
    }
    return mpsd.ApplyRequest(gpu_uuid=uuid(0), shares=[mpsd.Share(**(fields | changes))])


@pytest.fixture
def sharing() -> FakeSharing:
    return FakeSharing(uuid(0), uuid(1))


def test_apply_gives_the_whole_set_by_id_and_answers_with_the_state(
    root: Path, sharing: FakeSharing
) -> None:
    request = _request(id="b", priority=1, expose=mpsd.EXPOSE_FOLDER)
    request.shares.append(_request(id="a").shares[0])
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        state = calls.Apply(request, timeout=10)
        assert state.gpu_uuid == uuid(0)
        assert (state.phase, list(state.shares)) == (mpsd.PHASE_ACTIVE, ["a", "b"])
        calls.Apply(mpsd.ApplyRequest(gpu_uuid=uuid(0)), timeout=10)
    shares = (share("a"), share("b", priority=1, expose=Expose.FOLDER))
    assert sharing.applied == [(uuid(0), shares), (uuid(0), ())]
    assert sharing.watches == []


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"id": ""}, ("shares[0].id", "''")),
        ({"id": "../etc"}, ("shares[0].id", "'../etc'")),
        ({"id": "a" * 81}, ("shares[0].id", "80")),
        ({"id": "a\n"}, ("shares[0].id",)),
        ({"compute_percent": 0}, ("share-1", "compute_percent is 0", "1 to 100")),
        ({"compute_percent": 101}, ("compute_percent is 101",)),
        ({"memory_mib": 0}, ("memory_mib is 0",)),
        ({"memory_mib": (1 << 31) + 1}, ("memory_mib is 2147483649",)),
        ({"priority": 2}, ("priority is 2", "0 to 1")),
        ({"expose": 0}, ("expose is 0",)),
        ({"expose": 7}, ("expose is 7",)),
    ],
)
def test_apply_refuses_a_share_when_a_field_is_impossible(
    root: Path, sharing: FakeSharing, changes: dict[str, Any], texts: tuple[str, ...]
) -> None:
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        with pytest.raises(grpc.RpcError) as refused:
            calls.Apply(_request(**changes), timeout=10)
        assert _code(refused.value) is grpc.StatusCode.INVALID_ARGUMENT
        assert all(text in _text(refused.value) for text in texts), _text(refused.value)
    assert sharing.applied == []


@pytest.mark.parametrize("gpu", ["", "0", "GPU-", "GPU-../x", f"GPU-{'a' * 61}", "MIG-1234"])
def test_calls_refuse_what_is_no_gpu(root: Path, sharing: FakeSharing, gpu: str) -> None:
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        for call in (
            lambda: calls.Apply(mpsd.ApplyRequest(gpu_uuid=gpu), timeout=10),
            lambda: calls.TerminateClient(
                mpsd.TerminateClientRequest(gpu_uuid=gpu, pid=7), timeout=10
            ),
        ):
            with pytest.raises(grpc.RpcError, match="gpu_uuid is") as refused:
                call()
            assert _code(refused.value) is grpc.StatusCode.INVALID_ARGUMENT


def test_apply_refuses_an_id_that_stands_twice(root: Path, sharing: FakeSharing) -> None:
    request = _request()
    request.shares.append(request.shares[0])
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        with pytest.raises(grpc.RpcError, match=r"shares\[1\].id is 'share-1'") as refused:
            calls.Apply(request, timeout=10)
        assert _code(refused.value) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("error", "code", "permanent"),
    [
        (AdapterError("foreign"), grpc.StatusCode.FAILED_PRECONDITION, False),
        (AdapterError("pre-Volta", permanent=True), grpc.StatusCode.FAILED_PRECONDITION, True),
        (NotReady(Reason.OUT_OF_TIME, "late"), grpc.StatusCode.DEADLINE_EXCEEDED, False),
        (NotReady(Reason.STEP_FAILED, "later"), grpc.StatusCode.UNAVAILABLE, False),
        (NotReady(Reason.DEVICE_BUSY, "full"), grpc.StatusCode.RESOURCE_EXHAUSTED, False),
    ],
)
def test_apply_spells_errors_as_the_protocol_says(
    root: Path,
    sharing: FakeSharing,
    error: AdapterError | NotReady,
    code: grpc.StatusCode,
    permanent: bool,  # noqa: FBT001
) -> None:
    sharing.broken = error
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        with pytest.raises(grpc.RpcError) as refused:
            calls.Apply(_request(), timeout=10)
        assert (_code(refused.value), _text(refused.value)) == (code, str(error))
        marks = dict(_call(refused.value).trailing_metadata())
        assert service.REASON_KEY in marks
        assert (service.PERMANENT_KEY in marks) == permanent


def test_apply_is_due_before_its_caller_gives_up(root: Path, sharing: FakeSharing) -> None:
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        end_s = monotonic() + 20
        calls.Apply(_request(), timeout=20)
    (deadline,) = sharing.deadlines
    assert deadline.at_s <= end_s


def test_apply_is_refused_when_too_many_wait_for_the_gpu(root: Path, sharing: FakeSharing) -> None:
    sharing.gate.clear()
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        called = [
            calls.Apply.future(_request(), timeout=60) for _ in range(2 + service.WAITERS_PER_GPU)
        ]
        (refused,) = eventually(lambda: [each for each in called if each.done()], 30, "one ends")
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        sharing.gate.set()
        called.remove(refused)
        assert {each.result().phase for each in called} == {mpsd.PHASE_ACTIVE}
        assert calls.Apply(_request(), timeout=10).phase == mpsd.PHASE_ACTIVE


def test_get_tells_all_of_a_state(root: Path, sharing: FakeSharing) -> None:
    sharing.states.set(
        (
            GpuSharing(gpu=uuid(1)),
            GpuSharing(
                gpu=uuid(0),
                phase=MpsPhase.FAULT,
                shares=("a",),
                message="m" * 5000,
                daemon_pid=7,
                server_pid=8,
                restarts=2,
                clients=0,
                proof=Proof(control_only=False, reason="no"),
                multi_user=True,
                refusal="foreign",
                simulated=True,
            ),
        )
    )
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        full, empty = calls.Get(mpsd.GetRequest(), timeout=10).gpus
    assert (full.gpu_uuid, empty.gpu_uuid) == (uuid(0), uuid(1))
    assert (full.phase, full.daemon_pid, full.server_pid) == (mpsd.PHASE_FAULT, 7, 8)
    assert (full.restarts, full.clients, full.HasField("clients")) == (2, 0, True)
    assert (full.proof.control_only, full.proof.HasField("control_only")) == (False, True)
    assert full.proof.reason == "no"
    assert (full.multi_user, full.refusal, full.simulated) == (True, "foreign", True)
    assert len(full.message) == 1024
    assert not empty.HasField("proof")
    assert not empty.HasField("clients")


def test_client_is_terminated_once(root: Path, sharing: FakeSharing) -> None:
    sharing.clients = {4711}
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        request = mpsd.TerminateClientRequest(gpu_uuid=uuid(0), pid=4711)
        calls.TerminateClient(request, timeout=10)
        with pytest.raises(grpc.RpcError, match="4711 is no client") as refused:
            calls.TerminateClient(request, timeout=10)
        assert _code(refused.value) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("pid", [0, 1, (1 << 22) + 1])
def test_nobody_is_terminated_when_the_pid_is_impossible(
    root: Path, sharing: FakeSharing, pid: int
) -> None:
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        request = mpsd.TerminateClientRequest(gpu_uuid=uuid(0), pid=pid)
        with pytest.raises(grpc.RpcError, match=f"pid is {pid}") as refused:
            calls.TerminateClient(request, timeout=10)
        assert _code(refused.value) is grpc.StatusCode.INVALID_ARGUMENT


def _call(error: BaseException) -> Any:
    return error


def _code(error: BaseException) -> grpc.StatusCode:
    code: grpc.StatusCode = _call(error).code()
    return code


def _text(error: BaseException) -> str:
    return str(_call(error).details())
