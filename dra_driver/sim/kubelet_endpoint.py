"""One registered endpoint of a driver: its connection and the calls over it."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Event, Lock
from time import monotonic
from typing import Any

import grpc

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import dra_v1beta1_pb2 as v1beta1
from dra_api.kubelet import dra_v1beta1_pb2_grpc as v1beta1_grpc
from dra_driver.model.claim import ClaimRef
from dra_driver.model.record import PreparedDevice
from dra_driver.sim.kubelet_health import HealthWatch
from dra_driver.sim.kubelet_values import (
    HealthReport,
    KubeletError,
    KubeletTimes,
    Manners,
    PluginDetails,
    chosen,
)

_WATCHER_ENDS_S = 0.5

_OPTIONS = (
    # Shared connections would outlive the socket that they were made for.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class Endpoint:
    """Connects at once and keeps connecting, from construction to `close`."""

    def __init__(self, details: PluginDetails, *, times: KubeletTimes, manners: Manners) -> None:
        self.details = details
        self.service = chosen(details.versions, manners.services) or ""
        self._times = times
        self._manners = manners
        # The kubelet prepends the scheme, so an endpoint that has one already cannot be dialled.
        self._channel = grpc.insecure_channel(f"unix:{details.endpoint}", options=_OPTIONS)
        self._messages: Any = v1 if self.service == "v1.DRAPlugin" else v1beta1
        stub = v1_grpc.DRAPluginStub if self.service == "v1.DRAPlugin" else _v1beta1_stub
        self._stub: Any = stub(self._channel)
        self._lock = Lock()
        self._connected = False
        self._lost_s: float | None = None
        self._channel.subscribe(self._on_connectivity, try_to_connect=True)
        self._health = HealthWatch(
            self._channel,
            name=details.driver,
            service=chosen(manners.health_services, details.versions),
            times=times,
        )

    @property
    def connected(self) -> bool:
        with self._lock:
            return self._connected

    @property
    def lost_s(self) -> float | None:
        """When the connection was lost; None: it stands, or never did."""
        with self._lock:
            return self._lost_s

    def health(self) -> tuple[HealthReport, ...]:
        """The newest report of each device, by pool and name; stale ones say Unknown."""
        return self._health.reports()

    def prepare(self, refs: tuple[ClaimRef, ...]) -> Mapping[str, tuple[PreparedDevice, ...] | str]:
        """One NodePrepareResources: devices or the error text, by claim UID, as answered.

        Raises:
            KubeletError: the call as a whole failed.
        """
        request = self._messages.NodePrepareResourcesRequest(claims=self._claims(refs))
        response = self._call("NodePrepareResources", request)
        return {
            uid: answer.error or tuple(_device(each) for each in answer.devices)
            for uid, answer in sorted(response.claims.items())
        }

    def unprepare(self, refs: tuple[ClaimRef, ...]) -> Mapping[str, str]:
        """One NodeUnprepareResources: the error text, empty for success, by claim UID.

        Raises:
            KubeletError: the call as a whole failed.
        """
        request = self._messages.NodeUnprepareResourcesRequest(claims=self._claims(refs))
        response = self._call("NodeUnprepareResources", request)
        return {uid: answer.error for uid, answer in sorted(response.claims.items())}

    def close(self) -> None:
        """End the health stream and the connection; calls in flight fail."""
        self._health.cancel()
        self._channel.unsubscribe(self._on_connectivity)
        # gRPC's own thread looks after the connection every 0.2 s until it finds nobody to tell;
        # it fails loudly where the channel is closed before.
        Event().wait(_WATCHER_ENDS_S)
        self._channel.close()
        self._health.join()

    def _claims(self, refs: tuple[ClaimRef, ...]) -> list[Any]:
        return [
            self._messages.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)
            for ref in refs
        ]

    def _call(self, method: str, request: Any) -> Any:
        try:
            call = getattr(self._stub, method).future(request, timeout=self._times.call_s)
        except ValueError as error:
            raise KubeletError(f"{method}: the connection was closed") from error
        try:
            return call.result(timeout=self._manners.cancel_after_s)
        except grpc.FutureTimeoutError as error:
            call.cancel()
            raise KubeletError(f"{method}: rpc error: code = Canceled") from error
        except grpc.FutureCancelledError as error:
            raise KubeletError(f"{method}: rpc error: code = Canceled") from error
        except grpc.RpcError as error:
            raise KubeletError(
                f"{method}: rpc error: code = {call.code().name} desc = {call.details()}"
            ) from error

    def _on_connectivity(self, state: grpc.ChannelConnectivity) -> None:
        with self._lock:
            connected = state is grpc.ChannelConnectivity.READY
            if self._connected and not connected:
                self._lost_s = monotonic()
            elif connected:
                self._lost_s = None
            self._connected = connected


def _v1beta1_stub(channel: grpc.Channel) -> Any:
    return v1beta1_grpc.DRAPluginStub(channel)


def _device(message: Any) -> PreparedDevice:
    # A v1beta1 device has no share id; one of v1 may be without.
    share_id = getattr(message, "share_id", "")
    return PreparedDevice(
        requests=tuple(message.request_names),
        pool=message.pool_name,
        device=message.device_name,
        cdi_ids=tuple(message.cdi_device_ids),
        share_id=share_id or None,
    )
