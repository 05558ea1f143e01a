"""/healthz, /readyz and /metrics for probes and collectors."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock, Thread
from time import monotonic
from types import TracebackType
from typing import Any, Self

from dra_driver import log
from dra_driver.errors import FatalError
from dra_driver.settings import Endpoint

Check = Callable[[], str | None]
"""Gives the problem as one sentence, or None."""

_CHECK_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 5.0
_REQUESTS_AT_ONCE = 16
_STOP_POLL_S = 0.1
_TEXT = "text/plain; charset=utf-8"

_log = log.get(__name__)


class HttpServer:
    """Serves between `__enter__` and `__exit__`, in threads of its own.

    A check that hangs makes its page fail after a bounded time, and is not started a second time
    meanwhile.

    Args:
        endpoint: where to listen.
        checks: path, such as "/healthz", to its checks by name.
        metrics: the text of /metrics and its content type.
        check_timeout_s: how long one page waits for its checks.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        checks: Mapping[str, Mapping[str, Check]],
        metrics: Callable[[], tuple[bytes, str]],
        check_timeout_s: float = _CHECK_TIMEOUT_S,
    ) -> None:
        self._endpoint = endpoint
        self._timeout_s = check_timeout_s
        self._metrics = metrics
        self._checks = {
            path: [_Running(name, check) for name, check in sorted(named.items())]
            for path, named in checks.items()
        }
        self._server: _Server | None = None
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        """Raises FatalError where nothing can listen there."""
        try:
            self._server = _Server(_listen(self._endpoint), self._page)
        except OSError as error:
            raise FatalError(
                f"cannot listen on {self._endpoint}: {_cause(error)}; give another "
                "--http-endpoint or end what listens there"
            ) from error
        self._thread = Thread(target=self._server.serve_forever, args=(_STOP_POLL_S,), name="http")
        self._thread.start()
        _log.info("Serving health and metrics", endpoint=str(self.address))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    @property
    def address(self) -> Endpoint:
        """Where it listens, with the port that port 0 became."""
        if self._server is None:
            return self._endpoint
        return Endpoint(self._endpoint.host, self._server.socket.getsockname()[1])

    def _page(self, path: str) -> tuple[HTTPStatus, bytes, str]:
        if path == "/metrics":
            return HTTPStatus.OK, *self._metrics()
        if path not in self._checks:
            known = ", ".join(sorted({*self._checks, "/metrics"}))
            return HTTPStatus.NOT_FOUND, f"there is only {known}\n".encode(), _TEXT
        evaluations = [(each.name, each.begin()) for each in self._checks[path]]
        until_s = monotonic() + self._timeout_s
        problems = [(name, each.wait(until_s - monotonic())) for name, each in evaluations]
        lines = [f"{name}: {problem or 'ok'}\n" for name, problem in problems]
        well = not any(problem for _, problem in problems)
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "".join(lines or ["ok\n"]).encode(), _TEXT


class _Running:
    """A check, of which at most one evaluation runs at a time, shared by all who ask."""

    def __init__(self, name: str, check: Check) -> None:
        self.name = name
        self._check = check
        self._lock = Lock()
        self._evaluation: _Evaluation | None = None

    def begin(self) -> _Evaluation:
        with self._lock:
            if self._evaluation is None or not self._evaluation.is_alive():
                self._evaluation = _Evaluation(self.name, self._check)
                self._evaluation.start()
            return self._evaluation


class _Evaluation(Thread):
    """A daemon, so that a check that hangs does not keep the process from ending."""

    def __init__(self, name: str, check: Check) -> None:
        super().__init__(name=f"check-{name}", daemon=True)
        self._check = check
        self._answer: str | None = "the check itself failed, see the log"

    def run(self) -> None:
        self._answer = self._check()

    def wait(self, timeout_s: float) -> str | None:
        self.join(max(timeout_s, 0.0))
        return "no answer in time" if self.is_alive() else self._answer


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, listening: socket.socket, page: Callable[[str], Any]) -> None:
        super().__init__(("", 0), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.page = page
        self._slots = BoundedSemaphore(_REQUESTS_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        # Threads are bounded: who does not get one at once is turned away by a closed connection.
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        del request
        _log.debug("A request ended early", client=str(client_address), exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_S
    server_version = "gpuslice"
    sys_version = ""

    def do_GET(self) -> None:
        status, body, content_type = self.server.page(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        _log.debug("Answered a request", request=format % args)


def _listen(endpoint: Endpoint) -> socket.socket:
    address = (endpoint.host, endpoint.port)
    if not endpoint.host and socket.has_dualstack_ipv6():
        return socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
    return socket.create_server(address, family=family)


def _cause(error: OSError) -> str:
    # create_server adds the address to the text, and a host that is not found has no errno of ours.
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error.strerror or error)
