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

from dra_driver.adapters.kube_errors import answer_error, status_object, watch_error
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
        response = self._answer(method, path, query, body, what=what, limit_s=limit_s)
        return _parse(_read(response, what=what, name=name), what=what, kind=kind)

    def exchange(
        self, method: str, path: str, *, what: str, query: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        """Give status and content of an answer, whatever they are; raises as `call` without one."""
        what = f"{what} at {self.server}"
        response = self._answer(method, path, query, None, what=what, limit_s=timeout_s)
        try:
            return response.status, response.data
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _broken(what, error) from error
        finally:
            response.release_conn()

    def watch(self, path: str, *, what: str, query: Mapping[str, str], timeout_s: float) -> Stream:
        """Open a watch; the server ends it after `timeout_s`."""
        what = f"{what} at {self.server}"
        asked = {**query, "watch": "1", "timeoutSeconds": str(max(1, int(timeout_s)))}
        timeout = _timeout(self._answer_timeout_s)
        response = self._open("GET", path, asked, None, what=what, timeout=timeout)
        if response.status >= _FIRST_ERROR:
            _read(response, what=what, name="")
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

    def _answer(self, *request: Any, what: str, limit_s: float) -> urllib3.BaseHTTPResponse:
        """As `_open`, and once more with other credentials where these are not accepted."""
        response = self._open(*request, what=what, timeout=_timeout(limit_s))
        if response.status != _UNAUTHORIZED:
            return response
        response.drain_conn()
        self._credentials.renew()
        return self._open(*request, what=what, timeout=_timeout(limit_s))

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
        url = self.server + path + (f"?{urlencode(query)}" if query else "")
        headers = {
            "Accept": "application/json",
            "User-Agent": self._user_agent,
            **({"Content-Type": "application/json"} if body is not None else {}),
        }
        try:
            return self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers={**headers, **self._credentials.headers()},
                timeout=timeout,
                # Retries are the caller's, who knows how much time there is.
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _broken(what, error) from error


class Stream:
    """Events of a watch."""

    def __init__(self, response: urllib3.BaseHTTPResponse, *, what: str) -> None:
        self._response = response
        self._what = what
        self._lock = Lock()
        self._closed = False

    def __iter__(self) -> Iterator[Json]:
        try:
            yield from self._events()
        finally:
            with self._lock:
                self._closed = True
                # A watch is given up in the middle of its answer, so its connection goes with it.
                self._response.close()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                # The reader wakes up and closes the response itself.
                with suppress(ValueError, RuntimeError, OSError):
                    self._response.shutdown()

    def _events(self) -> Iterator[Json]:
        for line in self._lines():
            event = _parse(line, what=self._what, kind="")
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


def _read(response: urllib3.BaseHTTPResponse, *, what: str, name: str) -> bytes:
    """Read the whole answer; raises the error that it is where it is no success."""
    try:
        data = response.data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _broken(what, error) from error
    finally:
        response.release_conn()
    if response.status >= _FIRST_ERROR:
        retry_after = response.headers.get("Retry-After")
        raise answer_error(response.status, data, what=what, name=name, retry_after=retry_after)
    return data


def _parse(data: bytes, *, what: str, kind: str) -> Json:
    try:
        answer: Any = json.loads(data, object_pairs_hook=_each_once)
    except _TwiceError as error:
        # The server keeps a claim's opaque parameters as they came, and nobody can tell what a
        # field that stands there twice is meant to be.
        raise AdapterError(
            f"{what}: field {error} stands twice in one object: write it once, such as in a "
            "claim's opaque parameters",
            permanent=True,
        ) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise AdapterError(
            f"{what}: the answer is no JSON: {data[:80]!r}; check that the address is an API "
            "server's and what stands in between"
        ) from error
    except (ValueError, RecursionError) as error:
        # Parameters of a claim are its user's, and the server keeps whatever is JSON.
        raise AdapterError(
            f"{what}: the answer has numbers too long or lists too deep to be read ({error}); "
            "take them out of the object, such as out of a claim's opaque parameters",
            permanent=True,
        ) from error
    if not isinstance(answer, dict):
        raise AdapterError(f"{what}: the answer is no JSON object")
    if kind and answer.get("kind") not in {kind, None}:
        message = status_object(data).get("message", "")
        raise AdapterError(
            f"{what}: the answer is a {answer.get('kind')} instead of a {kind}: {message}"
        )
    return answer


class _TwiceError(Exception):
    """A JSON object has a name twice; the text is the name."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise _TwiceError(next(name for name in names if names.count(name) > 1))
    return found


def _broken(what: str, error: Exception) -> AdapterError:
    cause = f"{type(error).__name__}: {error}"
    return AdapterError(f"{what}: no answer ({cause}); check the server and the way to it")
