"""The health services v1 and v1alpha1: the full list at once, on change, and as a heartbeat."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, Lock
from typing import Any, assert_never

import grpc

from dra_api.kubelet import dra_health_v1_pb2 as v1
from dra_api.kubelet import dra_health_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import dra_health_v1alpha1_pb2 as v1alpha1
from dra_api.kubelet import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc
from dra_driver.model.health import HealthRow, HealthStatus
from dra_driver.ports import Clock, Recorder
from dra_driver.state.current import Current

HEARTBEAT_S = 8.0
"""The kubelet calls a device Unknown after 30 s of silence; it wants to be told each 10 s."""

STREAMS_MAX = 4
"""A kubelet has one stream; each holds a thread that prepares need too."""

_TIMEOUT_S = 30
_MESSAGE_MAX = 1024
_TICK_S = 0.25
"""How soon a stream notices that its kubelet has gone: nothing else wakes its thread."""


class HealthStreams:
    """What all streams of both versions share.

    Args:
        rows: of all published devices, sorted; streams end when it is closed.
        heartbeat_s: at most so long between two messages.
    """

    def __init__(
        self,
        rows: Current[tuple[HealthRow, ...]],
        *,
        clock: Clock,
        recorder: Recorder,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._rows = rows
        self._clock = clock
        self._recorder = recorder
        self._heartbeat_s = heartbeat_s
        self._lock = Lock()
        self._open = 0
        self._closing = Event()

    def add_to(self, server: grpc.Server) -> None:
        """Serve v1 and v1alpha1; a 1.36 kubelet calls the latter whatever registration says."""
        v1_grpc.add_DRAResourceHealthServicer_to_server(_V1(self), server)
        v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(_V1Alpha1(self), server)

    def close(self) -> None:
        """End all streams in good order, and refuse new ones."""
        self._closing.set()

    def messages(self, version: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """One stream, in the messages of the generated module `version`."""
        if self._closing.is_set():
            context.abort(grpc.StatusCode.UNAVAILABLE, "the driver is shutting down")
        if not self._enter():
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{STREAMS_MAX} health streams are open already; end one first",
            )
        try:
            seen, rows = self._rows.snapshot()
            while self._wanted(context):
                yield _response(version, rows, updated_s=int(self._clock.wall_s()))
                seen, rows = self._next(seen, context)
        finally:
            self._leave()

    def _next(self, seen: int, context: grpc.ServicerContext) -> tuple[int, tuple[HealthRow, ...]]:
        """Wait for a change or the next heartbeat, whichever is first."""
        due_s = self._clock.monotonic_s() + self._heartbeat_s
        while True:
            left_s = due_s - self._clock.monotonic_s()
            version, rows = self._rows.wait_newer(seen, min(_TICK_S, max(0.0, left_s)))
            if version > seen or left_s <= _TICK_S or not self._wanted(context):
                return version, rows

    def _wanted(self, context: grpc.ServicerContext) -> bool:
        return context.is_active() and not self._closing.is_set() and not self._rows.closed

    def _enter(self) -> bool:
        with self._lock:
            if self._open >= STREAMS_MAX:
                return False
            self._open += 1
            self._recorder.gauge("health_streams", self._open)
            return True

    def _leave(self) -> None:
        with self._lock:
            self._open -= 1
            self._recorder.gauge("health_streams", self._open)


class _V1(v1_grpc.DRAResourceHealthServicer):
    def __init__(self, streams: HealthStreams) -> None:
        self._streams = streams

    def NodeWatchResources(  # noqa: N802
        self,
        request: v1.NodeWatchResourcesRequest,  # noqa: ARG002
        context: grpc.ServicerContext,
    ) -> Iterator[v1.NodeWatchResourcesResponse]:
        return self._streams.messages(v1, context)


class _V1Alpha1(v1alpha1_grpc.DRAResourceHealthServicer):
    def __init__(self, streams: HealthStreams) -> None:
        self._streams = streams

    def NodeWatchResources(  # noqa: N802
        self,
        request: v1alpha1.NodeWatchResourcesRequest,  # noqa: ARG002
        context: grpc.ServicerContext,
    ) -> Iterator[v1alpha1.NodeWatchResourcesResponse]:
        return self._streams.messages(v1alpha1, context)


def _response(version: Any, rows: tuple[HealthRow, ...], *, updated_s: int) -> Any:
    return version.NodeWatchResourcesResponse(
        devices=[
            version.DeviceHealth(
                device=version.DeviceIdentifier(pool_name=row.pool, device_name=row.device),
                health=_status(version, row.status),
                last_updated_time=updated_s,
                health_check_timeout_seconds=_TIMEOUT_S,
                message=_short(row.message),
            )
            for row in rows
        ]
    )


def _status(version: Any, status: HealthStatus) -> Any:
    match status:
        case HealthStatus.HEALTHY:
            return version.HEALTHY
        case HealthStatus.UNHEALTHY:
            return version.UNHEALTHY
        case HealthStatus.UNKNOWN:
            return version.UNKNOWN
        case _ as never:
            assert_never(never)


def _short(message: str) -> str:
    return message if len(message) <= _MESSAGE_MAX else f"{message[: _MESSAGE_MAX - 3]}..."
