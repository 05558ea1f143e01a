"""JSON over HTTP to one API server, and watches that can be closed from another thread."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import urllib3
from urllib3.connection import HTTPConnection

from dra_driver.adapters.kube_errors import answer_error, watch_error
from dra_driver.adapters.kube_json import parse
from dra_driver.adapters.kube_kept import FIRST_FINAL, Answer, KeptConnections
from dra_driver.errors import AdapterError
from dra_driver.ports import Json

_FIRST_ERROR = 400
_UNAUTHORIZED = 401
CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 10.0
_WATCH_GRACE_S = 10.0


def object_path(root: str, *parts: str) -> str:
    """Append path segments, each quoted."""
    return "/".join((root, *(quote(part, safe="") for part in parts)))


class Credentials(Protocol):
    """Headers that identify the driver."""

    def headers(self) -> Mapping[str, str]: ...

    def renew(self) -> None:
        """Read them again where they come from: the server did not accept them."""
        ...


class Transport:
    """Thread-safe.

    Args:
        server: base URL.
        pool: connections, with TLS and proxies set up.
        credentials: asked for at every request, as tokens rotate.
        user_agent: of the driver.
        answer_timeout_s: for an answer, and for the beginning of a watch.
    """

    def __init__(
        self,
        server: str,
        *,
        pool: urllib3.PoolManager,
        credentials: Credentials,
        user_agent: str,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> None:
        self.server = server.rstrip("/")
        self._pool = pool
        self._kept = KeptConnections(pool, server=self.server)
        self._credentials = credentials
        self._user_agent = user_agent
        self._answer_timeout_s = answer_timeout_s

    def call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        name: str = "",
        kind: str = "",
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """Send a request and give the JSON object of its answer.

        Args:
            method: of HTTP.
            path: absolute, quoted.
            what: the request, for people: "get ResourceClaim a/b".
            name: of the object that is asked for, where it may not exist.
            kind: that the answer must have; a Status in its place is an error whatever its code.
            query: parameters.
            body: JSON object to send.
            timeout_s: until the answer is there.

        Raises:
            AdapterError: no answer, or one that is no success, or not of `kind`.
        """
        what = f"{what} at {self.server}"
        limit_s = self._answer_timeout_s if timeout_s is None else timeout_s
        answer = self._answer(method, path, query, body, what=what, limit_s=limit_s)
        return parse(_content(answer, what=what, name=name), what=what, kind=kind)

    def exchange(
        self, method: str, path: str, *, what: str, query: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        """Give status and content of an answer, whatever they are; raises as `call` without one."""
        what = f"{what} at {self.server}"
        answer = self._answer(method, path, query, None, what=what, limit_s=timeout_s)
        return answer.status, answer.data

    def watch(self, path: str, *, what: str, query: Mapping[str, str], timeout_s: float) -> Stream:
        """Open a watch; the server ends it after `timeout_s`."""
        what = f"{what} at {self.server}"
        asked = {**query, "watch": "1", "timeoutSeconds": str(max(1, int(timeout_s)))}
        timeout = _timeout(self._answer_timeout_s)
        response = self._open("GET", path, asked, None, what=what, timeout=timeout)
        if response.status >= _FIRST_ERROR:
            _content(_read(response, what=what), what=what, name="")
        connection = response.connection
        if isinstance(connection, HTTPConnection) and connection.sock is not None:
            # A server begins a watch at once, and then it may be silent to the end of it.
            connection.sock.settimeout(timeout_s + _WATCH_GRACE_S)
        return Stream(response, what=what)

    def close(self) -> None:
        """Close idle connections now; clearing the pools would leave that to the collector."""
        for key in list(self._pool.pools.keys()):
            if (pool := self._pool.pools.get(key)) is not None:
                pool.close()
        self._pool.clear()

    def _answer(self, *request: Any, what: str, limit_s: float) -> Answer:
        """As `_ask`, and once more with other credentials where these are not accepted."""
        answer = self._ask(*request, what=what, limit_s=limit_s)
        if answer.status != _UNAUTHORIZED:
            return answer
        self._credentials.renew()
        return self._ask(*request, what=what, limit_s=limit_s)

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        *,
        what: str,
        limit_s: float,
    ) -> Answer:
        if method == "GET":
            headers = self._headers(body)
            try:
                answer = self._kept.get(_target(path, query), headers=headers, timeout_s=limit_s)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise _broken(what, error) from error
            if answer is not None:
                return answer
        response = self._open(method, path, query, body, what=what, timeout=_timeout(limit_s))
        return _read(response, what=what)

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Json | None,
        *,
        what: str,
        timeout: urllib3.Timeout,
    ) -> urllib3.BaseHTTPResponse:
        headers = self._headers(body)
        try:
            response = self._pool.request(
                method,
                self.server + _target(path, query),
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=timeout,
                # Retries are the caller's, who knows how much time there is.
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _broken(what, error) from error
        if response.status < FIRST_FINAL:
            response.close()
            early = urllib3.exceptions.ProtocolError(f"status {response.status} is no answer yet")
            raise _broken(what, early)
        return response

    def _headers(self, body: Json | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(self._credentials.headers())
        return headers


class Stream:
    """Events of a watch."""

    def __init__(self, response: urllib3.BaseHTTPResponse, *, what: str) -> None:
        self._response = response
        self._what = what
        self._lock = Lock()
        self._reading = False
        self._closed = False

    def __iter__(self) -> Iterator[Json]:
        with self._lock:
            self._reading = not self._closed
        if not self._reading:
            return
        try:
            yield from self._events()
        finally:
            with self._lock:
                self._closed = True
                # A watch is given up in the middle of its answer, so its connection goes with it.
                self._response.close()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if not self._reading:
                self._response.close()
                return
            # The reader wakes up and closes the response itself.
            with suppress(ValueError, RuntimeError, OSError):
                self._response.shutdown()

    def _events(self) -> Iterator[Json]:
        for line in self._lines():
            event = parse(line, what=self._what, kind="")
            found = event.get("object")
            if event.get("type") == "ERROR" and isinstance(found, Mapping):
                raise watch_error(found, what=self._what)
            if not _is_change(event.get("type"), found):
                raise AdapterError(
                    f"{self._what}: {line[:80]!r} is no event; check that the address is an API "
                    "server's and what stands in between"
                )
            yield event

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        try:
            for part in self._response.stream(amt=None, decode_content=True):
                *lines, rest = (rest + part).split(b"\n")
                yield from (line for line in lines if line.strip())
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            with self._lock:
                if self._closed:
                    return
            raise _broken(self._what, error) from error


def _timeout(total_s: float) -> urllib3.Timeout:
    return urllib3.Timeout(total=total_s, connect=min(total_s, CONNECT_TIMEOUT_S), read=total_s)


def _is_change(kind: Any, found: Any) -> bool:
    metadata = found.get("metadata") if isinstance(found, Mapping) else None
    if not isinstance(kind, str) or not isinstance(metadata, Mapping):
        return False
    # A bookmark is about no object.
    return kind == "BOOKMARK" or isinstance(metadata.get("name"), str)


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _read(response: urllib3.BaseHTTPResponse, *, what: str) -> Answer:
    """Read the whole answer."""
    try:
        data = response.data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _broken(what, error) from error
    finally:
        response.release_conn()
    retry_after = response.headers.get("Retry-After")
    return Answer(status=response.status, data=data, retry_after=retry_after)


def _content(answer: Answer, *, what: str, name: str) -> bytes:
    """The content of an answer; raises the error that it is where it is no success."""
    if answer.status < _FIRST_ERROR:
        return answer.data
    raise answer_error(
        answer.status, answer.data, what=what, name=name, retry_after=answer.retry_after
    )


def _broken(what: str, error: Exception) -> AdapterError:
    cause = f"{type(error).__name__}: {error}"
    return AdapterError(f"{what}: no answer ({cause}); check the server and the way to it")
