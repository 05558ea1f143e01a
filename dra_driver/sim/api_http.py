"""HTTP of the simulated API server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from dra_driver.sim.api_discovery import discovery
from dra_driver.sim.api_faults import Fault, Faults
from dra_driver.sim.api_profiles import ApiProfile
from dra_driver.sim.api_resources import Objects, Target, find_target
from dra_driver.sim.api_store import Object, StatusError

_WATCH_TICK_S = 0.5
_WATCH_DEFAULT_S = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, as the log keeps it.

    Attributes:
        at_s: monotonic.
        verb: get, list, watch, create, update, delete, deletecollection.
        resource: plural name, or the path's first part ("version").
        authorization: the header.
        status: 0 where the connection was closed without an answer, or is open still.
    """

    at_s: float
    verb: str
    resource: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: Any = None
    authorization: str = ""
    status: int = 0

    @property
    def dry_run(self) -> bool:
        return ("dryRun", "All") in self.query

    @property
    def writes(self) -> bool:
        return self.verb in {"create", "update", "delete", "deletecollection"} and not self.dry_run


class ApiHttpServer(ThreadingHTTPServer):
    """Serves on a loopback port; every connection has its thread, which `close_all` ends."""

    daemon_threads = False
    allow_reuse_address = True

    def __init__(
        self,
        port: int,
        *,
        objects: Objects,
        faults: Faults,
        profile: Callable[[], ApiProfile],
        log: Callable[[Request], None],
    ) -> None:
        self.objects = objects
        self.faults = faults
        self.profile = profile
        self.log = log
        self.closing = Event()
        self._lock = Lock()
        self._connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of the server."""

    def close_all(self) -> None:
        """End the connections that are open now; their threads end with them."""
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ApiHttpServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """The server keeps a log of its own."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        text = self.rfile.read(length) if length else b""
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        target = find_target(url.path)
        resource = target.resource.plural if target else url.path.strip("/").split("/")[0]
        self._request = Request(
            at_s=time.monotonic(),
            verb=_verb(self.command, target, query),
            resource=resource,
            path=url.path,
            query=tuple(sorted(query.items())),
            body=json.loads(text) if text else None,
            authorization=self.headers.get("Authorization", ""),
        )
        fault = self.server.faults.take(self._request.verb, resource, dry_run=self._request.dry_run)
        if fault is not None and self._harmed(fault):
            return
        profile = self.server.profile()
        if fault is not None and fault.gates is not None:
            profile = replace(profile, gates=fault.gates)
        try:
            self._answer_verb(target, query, profile)
        except StatusError as error:
            self._answer(error.code, _status_body(error))

    do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the base's names

    def _harmed(self, fault: Fault) -> bool:
        """Do what a fault says before the answer; whether there is nothing left to answer."""
        if fault.delay_s:
            self.server.closing.wait(fault.delay_s)
        if fault.reset or self.server.closing.is_set():
            self.close_connection = True
            self._log(0)
            return True
        if fault.status:
            error = StatusError(fault.status, fault.reason, "injected by a fault")
            text = fault.raw or json.dumps(_status_body(error)).encode()
            self._answer_text(fault.status, text, retry_after_s=fault.retry_after_s)
        return bool(fault.status)

    def _answer_verb(self, target: Target | None, query: dict[str, str], profile: Any) -> None:
        objects, body = self.server.objects, dict(self._request.body or {})
        if target is None:
            if self._request.path == "/version":
                self._answer(200, profile.version())
                return
            if (document := discovery(self._request.path)) is not None:
                self._answer(200, document)
                return
            raise StatusError(404, "NotFound", "the server could not find the requested resource")
        match self._request.verb:
            case "get":
                self._answer(200, objects.get(target))
            case "list":
                self._answer(200, objects.list(target, query))
            case "watch":
                self._watch(target, query)
            case "create":
                self._answer(201, objects.create(target, body, profile, query))
            case "update":
                self._answer(200, objects.replace(target, body, profile))
            case "delete":
                self._answer(200, objects.delete(target, body))
            case _:
                self._answer(200, objects.delete_collection(target, query))

    def _watch(self, target: Target, query: dict[str, str]) -> None:
        end = time.monotonic() + float(query.get("timeoutSeconds") or _WATCH_DEFAULT_S)
        self._log(200)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in self.server.objects.watch(
                target,
                query,
                ended=lambda: time.monotonic() >= end or self.server.closing.is_set(),
                timeout_s=min(_WATCH_TICK_S, max(0.0, end - time.monotonic())),
            ):
                if event is not None:
                    self._chunk(event)
        except StatusError as error:
            self._chunk({"type": "ERROR", "object": _status_body(error)})
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: Object) -> None:
        line = json.dumps(event).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _answer(self, status: int, body: Object) -> None:
        self._answer_text(status, json.dumps(body).encode())

    def _answer_text(self, status: int, text: bytes, *, retry_after_s: int | None = None) -> None:
        # Logged first: who has the answer finds the request in the log.
        self._log(status)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if retry_after_s is not None:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(text)

    def _log(self, status: int) -> None:
        self.server.log(replace(self._request, status=status))


def _verb(method: str, target: Target | None, query: dict[str, str]) -> str:
    one = target is None or bool(target.name)
    match method:
        case "GET" if not one:
            return "watch" if query.get("watch") in {"1", "true"} else "list"
        case "GET":
            return "get"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case _:
            return "delete" if one else "deletecollection"


def _status_body(error: StatusError) -> Object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": error.reason,
        "details": error.details,
        "code": error.code,
    }
