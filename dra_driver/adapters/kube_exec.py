"""Programs in pods, by the API server's exec.

Output goes to its reader as it comes: an archive may be larger than this machine's memory, and the
client library's own reader keeps all of it. Protocol: the first byte of a frame is its channel; 1
and 2 are the outputs, 3 brings a Status at the end. Source: apimachinery/pkg/util/remotecommand.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import urlencode, urlsplit

import certifi
import websocket
from websocket import ABNF

from dra_driver.adapters.kube_errors import status_object
from dra_driver.adapters.kube_transport import Credentials, object_path
from dra_driver.errors import AdapterError, Forbidden, NotFound

_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
_STDOUT, _STDERR, _STATUS = 1, 2, 3
_CONNECT_S = 15.0
_KEPT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAddress:
    namespace: str
    name: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecEnd:
    """How a program ended.

    Attributes:
        status: exit status.
        output: standard output, empty where a sink took it; `errors` is the other one. The first
            MiB of each.
    """

    status: int
    output: bytes
    errors: str


class PodExec:
    """Args: the client's configuration, and the headers that identify the caller."""

    def __init__(self, configuration: Any, *, credentials: Credentials) -> None:
        self._configuration = configuration
        self._credentials = credentials

    def run(
        self,
        pod: PodAddress,
        command: Sequence[str],
        *,
        silence_s: float,
        sink: Callable[[bytes], None] | None = None,
    ) -> ExecEnd:
        """Run a program, without standard input, to its end.

        Args:
            pod: where.
            command: program and arguments.
            silence_s: how long it may write nothing.
            sink: gets standard output, piece by piece.

        Raises:
            Forbidden: the caller may not run programs in this pod.
            NotFound: there is no such pod or container.
            AdapterError: no connection, the program could not be started, or its end is not known.
        """
        what = f"run {command[0]} in pod {pod}"
        kept: dict[int, bytearray] = {_STDOUT: bytearray(), _STDERR: bytearray()}
        status: bytes | None = None
        for channel, content in self._frames(pod, command, what=what, silence_s=silence_s):
            if channel == _STATUS:
                status = content
            elif channel == _STDOUT and sink is not None:
                sink(content)
            elif channel in kept:
                kept[channel] += content[: _KEPT_BYTES - len(kept[channel])]
        if status is None:
            raise AdapterError(f"{what}: the connection ended before the program; try again")
        return ExecEnd(
            status=_exit_status(status, what=what),
            output=bytes(kept[_STDOUT]),
            errors=kept[_STDERR].decode(errors="replace"),
        )

    def _frames(
        self, pod: PodAddress, command: Sequence[str], *, what: str, silence_s: float
    ) -> Iterator[tuple[int, bytes]]:
        connection = self._connect(pod, command, what=what)
        try:
            connection.settimeout(silence_s)
            heard_s = monotonic()
            while True:
                code, content = connection.recv_data()
                if code == ABNF.OPCODE_CLOSE:
                    return
                if content:
                    heard_s = monotonic()
                    yield content[0], content[1:]
                elif monotonic() - heard_s > silence_s:
                    raise AdapterError(f"{what}: silent for {silence_s:g} s")
        except websocket.WebSocketConnectionClosedException:
            return
        except websocket.WebSocketTimeoutException as error:
            raise AdapterError(f"{what}: silent for {silence_s:g} s") from error
        except (websocket.WebSocketException, OSError) as error:
            raise AdapterError(f"{what}: the connection broke ({error}); try again") from error
        finally:
            connection.shutdown()  # type: ignore[no-untyped-call]

    def _connect(
        self, pod: PodAddress, command: Sequence[str], *, what: str
    ) -> websocket.WebSocket:
        base = self._configuration.host.rstrip("/").replace("http", "ws", 1)
        path = object_path("/api/v1/namespaces", pod.namespace, "pods", pod.name, "exec")
        query = [("container", pod.container), ("stdout", "true"), ("stderr", "true")]
        query += [("command", word) for word in command]
        headers = [f"{name}: {value}" for name, value in self._credentials.headers().items()]
        try:
            return websocket.create_connection(
                f"{base}{path}?{urlencode(query)}",
                timeout=_CONNECT_S,
                header=headers,
                subprotocols=_PROTOCOLS,
                sslopt=self._tls(),
                suppress_origin=True,
                redirect_limit=0,
                **self._proxy(),
            )
        except websocket.WebSocketBadStatusException as error:
            raise _refused(error, what=what, pod=pod) from error
        except (websocket.WebSocketException, OSError) as error:
            raise AdapterError(
                f"{what}: no connection ({error}); check the server and the way to it"
            ) from error

    def _tls(self) -> dict[str, Any]:
        # As kubernetes.stream.ws_client.
        given = self._configuration
        if not given.verify_ssl:
            options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
        else:
            options = {
                "cert_reqs": ssl.CERT_REQUIRED,
                "ca_certs": given.ssl_ca_cert or certifi.where(),
            }
            if given.assert_hostname is not None:
                options["check_hostname"] = given.assert_hostname
        for name, value in (
            ("certfile", given.cert_file),
            ("keyfile", given.key_file),
            ("server_hostname", given.tls_server_name),
        ):
            if value:
                options[name] = value
        return options

    def _proxy(self) -> dict[str, Any]:
        if not self._configuration.proxy:
            return {}
        proxy = urlsplit(self._configuration.proxy)
        return {
            "http_proxy_host": proxy.hostname,
            "http_proxy_port": proxy.port,
            "proxy_type": proxy.scheme,
            "http_no_proxy": (self._configuration.no_proxy or "").split(","),
        }


def _refused(
    error: websocket.WebSocketBadStatusException, *, what: str, pod: PodAddress
) -> AdapterError:
    body = error.resp_body or b""
    content = body if isinstance(body, bytes) else str(body).encode()
    message = str(status_object(content).get("message") or content[:500].decode(errors="replace"))
    match error.status_code:
        case 403:
            return Forbidden(f"{what}: {message.strip()}")
        case 404:
            return NotFound(f"{what}: there is no pod {pod} with container {pod.container}")
        case status:
            return AdapterError(f"{what}: {status} {message.strip()}")


def _exit_status(content: bytes, *, what: str) -> int:
    try:
        status = json.loads(content)
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or ()
        codes = [each["message"] for each in causes if each.get("reason") == "ExitCode"]
        if codes:
            return int(codes[0])
        raise AdapterError(f"{what}: {status.get('message') or 'it could not be started'}")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise AdapterError(f"{what}: its end is not understood: {content[:200]!r}") from error
