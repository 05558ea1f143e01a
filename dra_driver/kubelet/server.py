"""The whole edge towards the kubelet: two servers on two sockets, started and stopped in order."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import grpc

from dra_driver import log
from dra_driver.errors import FatalError
from dra_driver.kubelet.calls import Calls
from dra_driver.kubelet.dra_service import add_dra_services
from dra_driver.kubelet.health_service import HEARTBEAT_S, HealthStreams
from dra_driver.kubelet.operations import LateOperations
from dra_driver.kubelet.paths import SocketPaths
from dra_driver.kubelet.registration import Registration, RegistrationService
from dra_driver.kubelet.sockets import instance
from dra_driver.model.health import HealthRow
from dra_driver.ports import Clock, Recorder
from dra_driver.sockets import ServedSocket, bind_server, hidden_path, publish
from dra_driver.state.current import Current

DRA_WORKERS = 32
REGISTRATION_WORKERS = 2
"""Their own server: no stream and no slow prepare can starve registration."""

_POLL_S = 0.1
_WIND_DOWN_S = 2.0
"""For answers on their way and health streams to end; it ends early where nothing is left."""

_OPTIONS = (
    # The kubelet keeps one connection for as long as it lives and may ping it without any call:
    # never answer that with ENHANCE_YOUR_CALM. Ages and idle times stay unset for the same reason.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)

_log = log.get(__name__)


class KubeletServer:
    """Serves registration, DRA and health from `start` to `stop`; each is called once.

    Args:
        operations: may be set after `start`; calls wait for them.
        health: of all published devices, sorted.
        registration: set on each notification of the kubelet.
        on_registered: see RegistrationService.
    """

    def __init__(
        self,
        paths: SocketPaths,
        *,
        operations: LateOperations,
        health: Current[tuple[HealthRow, ...]],
        registration: Current[Registration],
        on_registered: Callable[[], None],
        clock: Clock,
        recorder: Recorder,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        self._paths = paths
        self._operations = operations
        self._clock = clock
        self._calls = Calls(clock=clock, recorder=recorder)
        self._health = HealthStreams(
            health, clock=clock, recorder=recorder, heartbeat_s=heartbeat_s
        )
        self._registration = RegistrationService(
            driver=paths.driver,
            endpoint=paths.dra,
            state=registration,
            on_registered=on_registered,
            recorder=recorder,
        )
        self._owned = ExitStack()
        self._drained = True
        self._served: list[_Served] = []

    def start(self) -> None:
        """Take the instance's lock, serve DRA, then registration: the kubelet dials at once.

        Raises:
            FatalError: another process is this instance, or a socket cannot be made.
        """
        with ExitStack() as undo:
            undo.enter_context(instance(self._paths))
            undo.callback(self._wind_down)
            self._serve(self._add_services, self._paths.dra, workers=DRA_WORKERS, name="dra")
            self._serve(
                self._registration.add_to,
                self._paths.registration,
                workers=REGISTRATION_WORKERS,
                name="registration",
            )
            self._owned = undo.pop_all()
        _log.info(
            "Serving the kubelet",
            registration=str(self._paths.registration),
            endpoint=str(self._paths.dra),
        )

    def stop(self, *, grace_s: float, now: Event | None = None) -> bool:
        """Leave the kubelet: registration first, then let calls in flight finish.

        Args:
            grace_s: how long calls in flight may take.
            now: ends the grace at once when set (a second signal).

        Returns:
            False when calls are still running: their threads cannot be stopped and would hold up
            the interpreter's exit, so the caller has to end the process with os._exit.
        """
        self._calls.close()
        self._health.close()
        for registration in self._served[-1:]:
            registration.socket.withdraw()
        self._operations.close()
        drained = self._drain(grace_s, now)
        self._drained = drained
        self._owned.close()
        if not drained:
            _log.warning("Calls of the kubelet were cut off", grace_s=grace_s)
        return drained

    def _drain(self, grace_s: float, now: Event | None) -> bool:
        end_s = self._clock.monotonic_s() + grace_s
        while not self._calls.drained(_POLL_S):
            if self._clock.monotonic_s() >= end_s or (now is not None and now.is_set()):
                return False
        return True

    def _add_services(self, server: grpc.Server) -> None:
        add_dra_services(server, self._operations, self._calls)
        self._health.add_to(server)

    def _serve(
        self, add_to: Callable[[grpc.Server], None], path: Path, *, workers: int, name: str
    ) -> None:
        pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        server = grpc.server(pool, options=_OPTIONS)
        add_to(server)
        bind_server(server.add_insecure_port, path, bound=hidden_path(path))
        server.start()
        try:
            self._served.append(_Served(server, pool, publish(path, bound=hidden_path(path))))
        except FatalError:
            server.stop(grace=None)
            raise

    def _wind_down(self) -> None:
        grace_s = _WIND_DOWN_S if self._drained else 0.0
        for each in reversed(self._served):
            each.socket.withdraw()
        for stopped in [each.server.stop(grace_s) for each in reversed(self._served)]:
            stopped.wait()
        for each in self._served:
            each.pool.shutdown(wait=self._drained)


@dataclass(frozen=True, slots=True)
class _Served:
    server: grpc.Server
    pool: ThreadPoolExecutor
    socket: ServedSocket
