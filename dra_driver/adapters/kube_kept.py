"""GETs over kept connections.

urllib3 opens the connections, through proxies and TLS, and keeps those that are idle. Its way of
using one again takes three times the processor time of the request itself, and a node reads a claim
whenever a pod starts.
"""

from __future__ import annotations

import queue
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse

import urllib3
from urllib3.connection import HTTPConnection

_FIRST_ERROR = 400
FIRST_FINAL = 200
"""What follows an earlier status on a connection is the answer, not to be taken for the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Of a server, whatever it says.

    Attributes:
        status: of HTTP.
        data: content, decoded.
        retry_after: the header, where it is an error.
    """

    status: int
    data: bytes
    retry_after: str | None


class KeptConnections:
    """Connections to one server that are open and idle; thread-safe.

    Args:
        manager: opens and keeps them.
        server: base URL.
    """

    def __init__(self, manager: urllib3.PoolManager, *, server: str) -> None:
        self._manager = manager
        self._server = server
        self._base = ""
        self._pool: urllib3.HTTPConnectionPool | None = None
        self._head: tuple[Mapping[str, str], bytes] = ({}, b"")

    def get(self, target: str, *, headers: Mapping[str, str], timeout_s: float) -> Answer | None:
        """Ask; None where urllib3 has to, as nothing is idle or the answer is not plain.

        Args:
            target: path and query, quoted.
            headers: all but those of the connection.
            timeout_s: of silence.

        Raises:
            OSError: no answer, or none in time.
            urllib3.exceptions.HTTPError: no HTTP, or only a part of an answer.
        """
        pool = self._pool
        if pool is None or pool.pool is None:
            self._base = (urllib3.util.parse_url(self._server).path or "").rstrip("/")
            pool = self._pool = self._manager.connection_from_url(self._server)
        # What is sent to a proxy looks otherwise.
        connection = _take(pool) if pool.proxy is None else None
        if connection is None:
            return None
        try:
            return self._ask(connection, target, headers=headers, timeout_s=timeout_s)
        except HTTPException as error:
            raise urllib3.exceptions.ProtocolError(f"connection broken: {error!r}") from error
        finally:
            _put_back(pool, connection)

    def _ask(
        self,
        connection: HTTPConnection,
        target: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> Answer | None:
        """As `get`; the connection is closed where it can't be used again."""
        head = self._rest(connection, headers)
        if not head:
            return None
        line = f"GET {self._base}{target} HTTP/1.1\r\n"
        socket = connection.sock
        response = HTTPResponse(socket, method="GET")
        reusable = False
        try:
            if socket.gettimeout() != timeout_s:
                socket.settimeout(timeout_s)
            connection.send(line.encode("ascii") + head)
            response.begin()
            if response.status < FIRST_FINAL:
                raise HTTPException(f"status {response.status} is no answer yet")
            data = response.read()
            reusable = not response.will_close
        finally:
            if not reusable:
                # The descriptor lives as long as one of both is open.
                response.close()
                connection.close()
        if response.headers.get("Content-Encoding", "identity") != "identity":
            return None
        status = response.status
        retry_after = response.headers.get("Retry-After") if status >= _FIRST_ERROR else None
        return Answer(status=status, data=data, retry_after=retry_after)

    def _rest(self, connection: HTTPConnection, headers: Mapping[str, str]) -> bytes:
        """A request after its first line, empty where it is not plain; new with a new token."""
        known, head = self._head
        if headers != known:
            head = _head(connection, headers)
            self._head = (headers, head)
        return head


def _take(pool: urllib3.HTTPConnectionPool) -> HTTPConnection | None:
    idle = pool.pool
    if idle is None:
        return None
    try:
        connection = idle.get(block=False)
    except queue.Empty:
        return None
    # One that the server has closed, or where it said something unasked, urllib3 opens again.
    if isinstance(connection, HTTPConnection) and connection.is_connected:
        return connection
    _put_back(pool, connection)
    return None


def _put_back(pool: urllib3.HTTPConnectionPool, connection: HTTPConnection | None) -> None:
    idle = pool.pool
    if idle is None:
        _close(connection)
        return
    try:
        idle.put(connection, block=False)
    except queue.Full:
        _close(connection)
    if pool.pool is None:
        # Closed meanwhile, maybe before this one came back: nobody else will look in there again.
        with suppress(queue.Empty):
            while True:
                _close(idle.get(block=False))


def _close(connection: HTTPConnection | None) -> None:
    if connection is not None:
        connection.close()


def _head(connection: HTTPConnection, headers: Mapping[str, str]) -> bytes:
    host = connection.host
    if ":" in host:
        # A zone is this machine's own business.
        host = f"[{host.partition('%')[0]}]"
    if connection.port != connection.default_port:
        host = f"{host}:{connection.port}"
    lines = [f"Host: {host}", "Accept-Encoding: identity"]
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            return b""
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("ascii")
