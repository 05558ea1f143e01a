"""The driver's kubelet edge over real sockets, with scripted operations behind it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import grpc

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import pluginregistration_v1_pb2 as reg
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as reg_grpc
from dra_driver.adapters.clock import SystemClock
from dra_driver.kubelet.operations import ROOM_WAIT_S, LateOperations
from dra_driver.kubelet.paths import SocketPaths, socket_paths
from dra_driver.kubelet.registration import Registration
from dra_driver.kubelet.server import KubeletServer
from dra_driver.model.claim import ClaimRef
from dra_driver.model.health import HealthRow
from dra_driver.sim.kubelet_values import KubeletTimes
from dra_driver.state.current import Current
from tests.builders import DRIVER
from tests.fakes.operations import FakeOperations
from tests.fakes.recorder import FakeRecorder

TIMEOUT_S = 10.0


class Plugin:
    """One instance; `start` and `stop` by hand, or use `running`."""

    def __init__(
        self,
        root: Path,
        *,
        pod_uid: str = "",
        driver: str = DRIVER,
        heartbeat_s: float = 8.0,
        ready: bool = True,
        room_wait_s: float = ROOM_WAIT_S,
    ) -> None:
        self.paths = paths_in(root, pod_uid=pod_uid, driver=driver)
        self.operations = FakeOperations()
        self.late = LateOperations(SystemClock(), room_wait_s=room_wait_s)
        self.health: Current[tuple[HealthRow, ...]] = Current(())
        self.registration = Current(Registration())
        self.registered = Event()
        self.recorder = FakeRecorder()
        if ready:
            self.late.set(self.operations)
        self.server = KubeletServer(
            self.paths,
            operations=self.late,
            health=self.health,
            registration=self.registration,
            on_registered=self.registered.set,
            clock=SystemClock(),
            recorder=self.recorder,
            heartbeat_s=heartbeat_s,
        )

    def start(self) -> Plugin:
        self.server.start()
        return self

    def stop(self, *, grace_s: float = TIMEOUT_S, now: Event | None = None) -> bool:
        return self.server.stop(grace_s=grace_s, now=now)


@contextmanager
def running(root: Path, **options: Any) -> Iterator[Plugin]:
    plugin = Plugin(root, **options).start()
    try:
        yield plugin
    finally:
        plugin.stop(grace_s=0.0)


def paths_in(root: Path, *, pod_uid: str = "", driver: str = DRIVER) -> SocketPaths:
    return socket_paths(
        driver=driver,
        pod_uid=pod_uid,
        registrar_directory=root / "plugins_registry",
        plugins_directory=root / "plugins",
    )


@contextmanager
def channel(path: Path, **options: int) -> Iterator[grpc.Channel]:
    """A connection of its own to a socket; options without their `grpc.`."""
    pairs = [("grpc.use_local_subchannel_pool", 1)]
    pairs += [(f"grpc.{name}", value) for name, value in options.items()]
    with grpc.insecure_channel(f"unix:{path}", options=pairs) as opened:
        yield opened


def get_info(path: Path) -> reg.PluginInfo:
    with channel(path) as opened:
        return reg_grpc.RegistrationStub(opened).GetInfo(reg.InfoRequest(), timeout=1.0)


def claims(*refs: ClaimRef, messages: Any = v1) -> list[Any]:
    return [messages.Claim(namespace=r.namespace, name=r.name, uid=r.uid) for r in refs]


def prepare(
    opened: grpc.Channel, *refs: ClaimRef, timeout_s: float | None = TIMEOUT_S
) -> v1.NodePrepareResourcesResponse:
    request = v1.NodePrepareResourcesRequest(claims=claims(*refs))
    return v1_grpc.DRAPluginStub(opened).NodePrepareResources(request, timeout=timeout_s)


def prepare_later(opened: grpc.Channel, *refs: ClaimRef, timeout_s: float = 30.0) -> Any:
    request = v1.NodePrepareResourcesRequest(claims=claims(*refs))
    return v1_grpc.DRAPluginStub(opened).NodePrepareResources.future(request, timeout=timeout_s)


def unprepare_later(opened: grpc.Channel, *refs: ClaimRef, timeout_s: float = 30.0) -> Any:
    request = v1.NodeUnprepareResourcesRequest(claims=claims(*refs))
    return v1_grpc.DRAPluginStub(opened).NodeUnprepareResources.future(request, timeout=timeout_s)


def unprepare(opened: grpc.Channel, *refs: ClaimRef) -> v1.NodeUnprepareResourcesResponse:
    request = v1.NodeUnprepareResourcesRequest(claims=claims(*refs))
    return v1_grpc.DRAPluginStub(opened).NodeUnprepareResources(request, timeout=TIMEOUT_S)


def kubelet_times(**changes: float) -> KubeletTimes:
    """Times of an impatient kubelet, for tests."""
    quick = {
        "poll_s": 0.01,
        "backoff_s": 0.05,
        "start_wipe_s": 0.02,
        "wipe_s": 0.3,
        "health_restart_s": 0.05,
    }
    return KubeletTimes(**(quick | changes))
