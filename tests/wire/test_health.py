from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, time
from typing import Any

import grpc
import pytest

from dra_api.kubelet import dra_health_v1_pb2 as v1
from dra_api.kubelet import dra_health_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import dra_health_v1alpha1_pb2 as v1alpha1
from dra_api.kubelet import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc
from dra_driver.model.health import HealthRow, HealthStatus
from dra_driver.sim.kubelet import FakeKubelet
from dra_driver.sim.kubelet_values import Manners
from tests.builders import DRIVER
from tests.waiting import eventually
from tests.wire.plugin import (
    TIMEOUT_S,
    Plugin,
    channel,
    get_info,
    kubelet_times,
    prepare,
    running,
)

WELL = HealthRow(pool="node-a", device="gpu-0", status=HealthStatus.HEALTHY)
SICK = HealthRow(pool="node-a", device="gpu-1", status=HealthStatus.UNHEALTHY, message="XID 79")
UNKNOWN = HealthRow(pool="node-a", device="gpu-2", status=HealthStatus.UNKNOWN)

VERSIONS = pytest.mark.parametrize(
    ("stub", "messages"),
    [(v1_grpc.DRAResourceHealthStub, v1), (v1alpha1_grpc.DRAResourceHealthStub, v1alpha1)],
    ids=["v1", "v1alpha1"],
)


@VERSIONS
def test_stream_tells_all_devices_at_once(root: Path, stub: Any, messages: Any) -> None:
    with running(root) as plugin:
        plugin.health.set((WELL, SICK, UNKNOWN))
        with _stream(plugin, stub, messages) as stream:
            before_s = int(time())
            devices = next(stream).devices
            assert [
                (each.device.pool_name, each.device.device_name, each.health, each.message)
                for each in devices
            ] == [
                ("node-a", "gpu-0", messages.HEALTHY, ""),
                ("node-a", "gpu-1", messages.UNHEALTHY, "XID 79"),
                ("node-a", "gpu-2", messages.UNKNOWN, ""),
            ]
            assert all(abs(each.last_updated_time - before_s) <= 5 for each in devices)


@VERSIONS
def test_stream_tells_all_devices_when_one_changes(root: Path, stub: Any, messages: Any) -> None:
    with running(root) as plugin:
        plugin.health.set((WELL,))
        with _stream(plugin, stub, messages) as stream:
            assert len(next(stream).devices) == 1
            plugin.health.set((WELL, SICK))
            started_s = monotonic()
            assert len(next(stream).devices) == 2
            assert monotonic() - started_s < 2.0


def test_stream_repeats_the_list_when_nothing_changes(root: Path) -> None:
    with running(root, heartbeat_s=0.2) as plugin:
        plugin.health.set((WELL, SICK))
        with _stream(plugin, v1_grpc.DRAResourceHealthStub, v1) as stream:
            started_s = monotonic()
            lists = [next(stream).devices for _ in range(4)]
            assert [len(each) for each in lists] == [2, 2, 2, 2]
            assert 0.5 < monotonic() - started_s < 3.0


def test_stream_cuts_messages_to_what_the_kubelet_takes(root: Path) -> None:
    with running(root) as plugin:
        long = HealthRow(pool="p", device="d", status=HealthStatus.UNHEALTHY, message="x" * 1025)
        fits = HealthRow(pool="p", device="e", status=HealthStatus.UNHEALTHY, message="x" * 1024)
        plugin.health.set((long, fits))
        with _stream(plugin, v1_grpc.DRAResourceHealthStub, v1) as stream:
            cut, whole = (each.message for each in next(stream).devices)
            assert cut == "x" * 1021 + "..."
            assert whole == "x" * 1024


def test_fifth_stream_is_refused_and_admitted_when_another_has_ended(root: Path) -> None:
    with running(root) as plugin, channel(plugin.paths.dra) as opened:
        stub = v1_grpc.DRAResourceHealthStub(opened)
        open_streams = [
            stub.NodeWatchResources(v1.NodeWatchResourcesRequest(), timeout=30) for _ in range(4)
        ]
        for stream in open_streams:
            next(stream)
        with pytest.raises(grpc.RpcError) as refused:
            next(stub.NodeWatchResources(v1.NodeWatchResourcesRequest(), timeout=TIMEOUT_S))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert get_info(plugin.paths.registration)
        assert len(prepare(opened, timeout_s=1.0).claims) == 0
        open_streams[0].cancel()
        eventually(lambda: _admitted(stub), TIMEOUT_S, "a free stream")
        for stream in open_streams:
            stream.cancel()


def test_streams_are_told_apart_when_two_are_open(root: Path) -> None:
    with running(root) as plugin:
        plugin.health.set((WELL,))
        with (
            _stream(plugin, v1_grpc.DRAResourceHealthStub, v1) as one,
            _stream(plugin, v1alpha1_grpc.DRAResourceHealthStub, v1alpha1) as two,
        ):
            assert len(next(one).devices) == len(next(two).devices) == 1
            plugin.health.set((WELL, SICK))
            assert len(next(one).devices) == len(next(two).devices) == 2


def test_stream_ends_in_good_order_when_the_driver_stops(root: Path) -> None:
    plugin = Plugin(root).start()
    with channel(plugin.paths.dra) as opened:
        stream = v1_grpc.DRAResourceHealthStub(opened).NodeWatchResources(
            v1.NodeWatchResourcesRequest(), timeout=30
        )
        next(stream)
        assert plugin.stop()
        assert list(stream) == []
        assert stream.code() is grpc.StatusCode.OK


def test_streams_end_when_the_list_of_devices_is_closed(root: Path) -> None:
    with running(root) as plugin, _stream(plugin, v1_grpc.DRAResourceHealthStub, v1) as stream:
        next(stream)
        plugin.health.close()
        assert list(stream) == []


@pytest.mark.parametrize(
    "services",
    [("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"), ("v1alpha1.DRAResourceHealth",)],
)
def test_kubelet_learns_of_sickness_by_the_service_it_knows(
    root: Path, services: tuple[str, ...]
) -> None:
    manners = Manners(health_services=services)
    with (
        running(root) as plugin,
        FakeKubelet(root, wipe=lambda: None, times=kubelet_times(), manners=manners) as kubelet,
    ):
        plugin.health.set((WELL,))
        assert plugin.registered.wait(TIMEOUT_S)
        eventually(lambda: _statuses(kubelet) == ["Healthy"], TIMEOUT_S, "a healthy device")
        plugin.health.set((WELL, SICK))
        eventually(
            lambda: _statuses(kubelet) == ["Healthy", "Unhealthy"], TIMEOUT_S, "a sick device"
        )


def test_kubelet_says_unknown_when_the_stream_is_silent(root: Path) -> None:
    times = kubelet_times(health_timeout_s=0.3)
    with (
        running(root, heartbeat_s=60.0) as plugin,
        FakeKubelet(root, wipe=lambda: None, times=times) as kubelet,
    ):
        plugin.health.set((WELL,))
        assert plugin.registered.wait(TIMEOUT_S)
        eventually(lambda: _statuses(kubelet) == ["Healthy"], TIMEOUT_S, "a healthy device")
        eventually(lambda: _statuses(kubelet) == ["Unknown"], TIMEOUT_S, "a forgotten device")


def _statuses(kubelet: FakeKubelet) -> list[str]:
    return [report.row.status.value for report in kubelet.health(DRIVER)]


def _admitted(stub: v1_grpc.DRAResourceHealthStub) -> bool:
    stream = stub.NodeWatchResources(v1.NodeWatchResourcesRequest(), timeout=TIMEOUT_S)
    try:
        next(stream)
    except grpc.RpcError:
        return False
    stream.cancel()
    return True


@contextmanager
def _stream(plugin: Plugin, stub: Any, messages: Any) -> Iterator[Any]:
    with channel(plugin.paths.dra) as opened:
        stream = stub(opened).NodeWatchResources(messages.NodeWatchResourcesRequest(), timeout=30)
        yield stream
        stream.cancel()
