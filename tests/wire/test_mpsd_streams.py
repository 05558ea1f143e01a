from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_driver.mps import service
from tests.builders import uuid
from tests.fakes.sharing import FakeSharing
from tests.waiting import eventually
from tests.wire.mpsd import serving, stub


@pytest.fixture
def sharing() -> FakeSharing:
    return FakeSharing(uuid(0))


def test_stream_tells_the_present_state_and_then_changes(root: Path, sharing: FakeSharing) -> None:
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        stream = _stream(calls)
        assert [state.restarts for state in next(stream).gpus] == [0]
        sharing.tell(uuid(0), restarts=1)
        assert [state.restarts for state in next(stream).gpus] == [1]


def test_stream_ends_when_its_caller_goes(root: Path, sharing: FakeSharing) -> None:
    with serving(root / "mpsd.sock", sharing):
        with stub(root / "mpsd.sock") as calls:
            next(_stream(calls))
        (watch,) = sharing.watches
        eventually(watch.closed.is_set, 30, "the watch is closed")


def test_streams_are_few_and_a_place_is_free_again_when_one_ends(
    root: Path, sharing: FakeSharing
) -> None:
    with serving(root / "mpsd.sock", sharing), stub(root / "mpsd.sock") as calls:
        streams = [_stream(calls) for _ in range(service.STREAMS_MAX)]
        for stream in streams:
            next(stream)
        with pytest.raises(grpc.RpcError, match="streams are open already") as refused:
            next(_stream(calls))
        assert _any(refused.value).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        streams[0].cancel()
        eventually(lambda: _admitted(calls), 30, "another stream is taken")


def test_streams_end_and_calls_are_refused_when_the_server_stops(
    root: Path, sharing: FakeSharing
) -> None:
    with serving(root / "mpsd.sock", sharing) as server, stub(root / "mpsd.sock") as calls:
        stream = _stream(calls)
        next(stream)
        assert server.stop(grace_s=30)
        assert list(stream) == []
        assert not (root / "mpsd.sock").exists()
        with pytest.raises(grpc.RpcError) as refused:
            calls.Get(mpsd.GetRequest(), timeout=10)
        assert _any(refused.value).code() is grpc.StatusCode.UNAVAILABLE


def test_stop_says_so_when_a_call_hangs(root: Path, sharing: FakeSharing) -> None:
    sharing.gate.clear()
    with serving(root / "mpsd.sock", sharing) as server, stub(root / "mpsd.sock") as calls:
        call = calls.Apply.future(mpsd.ApplyRequest(gpu_uuid=uuid(0)), timeout=60)
        assert sharing.entered.wait(30)
        assert not server.stop(grace_s=0.0)
        sharing.gate.set()
        assert call.code() is not grpc.StatusCode.OK


def _stream(calls: Any) -> Any:
    return calls.Watch(mpsd.WatchRequest(), timeout=60)


def _admitted(calls: Any) -> bool:
    try:
        next(_stream(calls))
    except grpc.RpcError:
        return False
    return True


def _any(error: BaseException) -> Any:
    return error
