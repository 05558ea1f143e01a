"""What /healthz and /readyz answer.

Alive is not the same as ready: a node whose API server or GPU driver is away must not be restarted
for it, or its tenants' claims could not even be unprepared.
"""

from __future__ import annotations

from collections.abc import Callable

from dra_driver.app.node import Node
from dra_driver.app.pages import ended_loops, metrics_page
from dra_driver.kubelet.paths import SocketPaths
from dra_driver.kubelet.probe import probe_sockets
from dra_driver.kubelet.registration import Registration
from dra_driver.loops.guard import LoopGuard
from dra_driver.loops.sharing_monitor import SharingMonitor
from dra_driver.ports import Recorder
from dra_driver.settings import Endpoint
from dra_driver.state.current import Current
from dra_driver.telemetry.http import HttpServer

_SOCKET_TIMEOUT_S = 2.0


def serve_http(
    endpoint: Endpoint,
    *,
    node: Node,
    registration: Current[Registration],
    loops: LoopGuard,
    paths: SocketPaths,
    recorder: Recorder,
) -> HttpServer:
    """Pages over the running parts; serves while it is entered."""
    return HttpServer(
        endpoint,
        checks={
            "/healthz": {
                "sockets": lambda: probe_sockets(paths, timeout_s=_SOCKET_TIMEOUT_S) or None,
                "loops": lambda: ended_loops(loops),
            },
            "/readyz": {
                "registered": lambda: _unregistered(registration.get()),
                "published": lambda: node.publisher.state.get().problem or None,
                "gpus": lambda: node.gpu_problem.get() or None,
                **_sharing(node.sharing),
            },
        },
        metrics=metrics_page(recorder),
    )


def _sharing(monitor: SharingMonitor | None) -> dict[str, Callable[[], str | None]]:
    return {"sharing": lambda: monitor.problem() or None} if monitor is not None else {}


def _unregistered(state: Registration) -> str | None:
    if state.registered:
        return None
    return state.refusal or "the kubelet has not accepted the driver yet"
