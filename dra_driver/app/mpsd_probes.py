"""What /healthz and /readyz of `gpuslice mpsd` answer."""

from __future__ import annotations

from pathlib import Path

from dra_driver.app.pages import ended_loops, metrics_page
from dra_driver.loops.guard import LoopGuard
from dra_driver.mps.probe import probe_socket
from dra_driver.ports import Recorder
from dra_driver.settings import Endpoint
from dra_driver.state.current import Current
from dra_driver.telemetry.http import HttpServer

_SOCKET_TIMEOUT_S = 2.0


def serve_http(
    endpoint: Endpoint,
    *,
    socket: Path,
    problem: Current[str],
    loops: LoopGuard,
    recorder: Recorder,
) -> HttpServer:
    """Pages over the running parts; serves while it is entered.

    Args:
        endpoint: where to listen.
        socket: that the plugin calls.
        problem: why the GPUs cannot be read; empty when they can.
        loops: of the process.
        recorder: whose metrics are told.
    """
    return HttpServer(
        endpoint,
        checks={
            "/healthz": {
                "socket": lambda: probe_socket(socket, timeout_s=_SOCKET_TIMEOUT_S) or None,
                "loops": lambda: ended_loops(loops),
            },
            "/readyz": {
                "socket": lambda: probe_socket(socket, timeout_s=_SOCKET_TIMEOUT_S) or None,
                "gpus": lambda: problem.get() or None,
            },
        },
        metrics=metrics_page(recorder),
    )
