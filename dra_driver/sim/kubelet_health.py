"""Subscription to a driver's health stream, restarted as the kubelet does."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import grpc

from dra_api.kubelet import dra_health_v1_pb2 as v1
from dra_api.kubelet import dra_health_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import dra_health_v1alpha1_pb2 as v1alpha1
from dra_api.kubelet import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc
from dra_driver.model.health import HealthRow, HealthStatus
from dra_driver.sim.kubelet_values import HealthReport, KubeletTimes

_STATUS = (HealthStatus.UNKNOWN, HealthStatus.HEALTHY, HealthStatus.UNHEALTHY)


class HealthWatch:
    """Watches from construction to `cancel`; without a service it does nothing.

    Reports of a stream are forgotten when it ends; a driver that does not implement the service is
    not asked again.
    """

    def __init__(
        self, channel: grpc.Channel, *, name: str, service: str | None, times: KubeletTimes
    ) -> None:
        self._channel = channel
        self._service = service
        self._times = times
        self._lock = Lock()
        self._reports: dict[tuple[str, str], HealthReport] = {}
        self._call: Any = None
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"kubelet-health-{name}")
        if service is not None:
            self._thread.start()

    def reports(self) -> tuple[HealthReport, ...]:
        now_s = monotonic()
        with self._lock:
            reports = [self._reports[key] for key in sorted(self._reports)]
        return tuple(self._aged(report, now_s) for report in reports)

    def cancel(self) -> None:
        self._stop.set()
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    def join(self) -> None:
        if self._service is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch()
            except grpc.RpcError as error:
                if _code(error) is grpc.StatusCode.UNIMPLEMENTED:
                    return
            finally:
                with self._lock:
                    self._reports.clear()
            self._stop.wait(self._times.health_restart_s)

    def _watch(self) -> None:
        call: Any = (
            v1_grpc.DRAResourceHealthStub(self._channel).NodeWatchResources(
                v1.NodeWatchResourcesRequest()
            )
            if self._service == "v1.DRAResourceHealth"
            else v1alpha1_grpc.DRAResourceHealthStub(self._channel).NodeWatchResources(
                v1alpha1.NodeWatchResourcesRequest()
            )
        )
        with self._lock:
            self._call = call
        if self._stop.is_set():
            call.cancel()
        for message in call:
            self._take(message)

    def _take(self, message: Any) -> None:
        now_s = monotonic()
        with self._lock:
            for each in message.devices:
                row = HealthRow(
                    pool=each.device.pool_name,
                    device=each.device.device_name,
                    status=_STATUS[each.health],
                    message=each.message,
                )
                self._reports[row.pool, row.device] = HealthReport(
                    row=row, updated_s=each.last_updated_time, received_s=now_s
                )

    def _aged(self, report: HealthReport, now_s: float) -> HealthReport:
        if now_s - report.received_s <= self._times.health_timeout_s:
            return report
        return replace(report, row=replace(report.row, status=HealthStatus.UNKNOWN))


def _code(error: Any) -> Any:
    return error.code()
