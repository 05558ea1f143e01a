from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping
from threading import Event

import pytest

from dra_driver.errors import FatalError
from dra_driver.settings import Endpoint
from dra_driver.telemetry.http import Check, HttpServer


def _server(
    healthz: Mapping[str, Check] | None = None, *, host: str = "127.0.0.1", timeout_s: float = 5.0
) -> HttpServer:
    return HttpServer(
        Endpoint(host, 0),
        checks={"/healthz": healthz or {}, "/readyz": {"published": lambda: "not yet published"}},
        metrics=lambda: (b"gpuslice_build_info 1\n", "text/plain; version=0.0.4"),
        check_timeout_s=timeout_s,
    )


def _get(server: HttpServer, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection(
        server.address.host or "127.0.0.1", server.address.port, timeout=10
    )
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def test_http_answers_ok_when_all_checks_pass() -> None:
    with _server({"sockets": lambda: None}) as server:
        assert _get(server, "/healthz") == (200, "text/plain; charset=utf-8", "sockets: ok\n")


def test_http_answers_503_with_every_check_when_one_fails() -> None:
    with _server({"sockets": lambda: "the DRA socket is gone", "api": lambda: None}) as server:
        status, _, body = _get(server, "/healthz?verbose")
    assert (status, body) == (503, "api: ok\nsockets: the DRA socket is gone\n")


def test_http_serves_metrics_and_keeps_pages_apart() -> None:
    with _server() as server:
        assert _get(server, "/metrics")[1:] == (
            "text/plain; version=0.0.4",
            "gpuslice_build_info 1\n",
        )
        assert _get(server, "/healthz")[0] == 200
        assert _get(server, "/readyz")[::2] == (503, "published: not yet published\n")
        assert _get(server, "/")[::2] == (404, "there is only /healthz, /metrics, /readyz\n")


def test_http_sends_no_body_when_only_the_head_is_asked() -> None:
    with (
        _server() as server,
        socket.create_connection(("127.0.0.1", server.address.port), timeout=10) as client,
    ):
        client.sendall(b"HEAD /metrics HTTP/1.0\r\n\r\n")
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.0 200 ")
    assert answer.endswith(b"\r\n\r\n")


def test_http_answers_in_time_and_starts_no_second_check_when_one_hangs() -> None:
    release, calls = Event(), list[int]()

    def hang() -> None:
        calls.append(1)
        release.wait(30)

    with _server({"sockets": hang, "fast": lambda: None}, timeout_s=0.1) as server:
        for _ in range(3):
            status, _, body = _get(server, "/healthz")
            assert (status, body) == (503, "fast: ok\nsockets: no answer in time\n")
        assert _get(server, "/metrics")[0] == 200
        release.set()
    assert calls == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_http_answers_503_when_a_check_raises() -> None:
    def broken() -> None:
        raise RuntimeError("bug")

    with _server({"sockets": broken}) as server:
        status, _, body = _get(server, "/healthz")
    assert (status, body) == (503, "sockets: the check itself failed, see the log\n")


def test_http_names_the_endpoint_when_the_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer(
            Endpoint("127.0.0.1", port), checks={}, metrics=lambda: (b"", "text/plain")
        )
        with pytest.raises(FatalError) as caught, server:
            pass
    assert str(caught.value) == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; give another "
        "--http-endpoint or end what listens there"
    )


def test_http_listens_everywhere_when_the_host_is_empty() -> None:
    with _server(host="") as server:
        assert _get(server, "/healthz")[0] == 200


def test_http_frees_the_port_and_its_threads_when_it_ends() -> None:
    with _server() as server:
        port = server.address.port
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_http_turns_clients_away_when_too_many_wait() -> None:
    with _server() as server:
        address = ("127.0.0.1", server.address.port)
        idle = [socket.create_connection(address, timeout=10) for _ in range(17)]
        try:
            assert idle[-1].recv(1) == b""
        finally:
            for each in idle:
                each.close()
