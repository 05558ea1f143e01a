"""GETs over kept connections, and what a server may do to those."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator, Mapping
from socket import socketpair
from threading import Thread

import pytest
import urllib3
from urllib3.connection import HTTPConnection

from dra_driver.adapters.kube_kept import _put_back
from dra_driver.adapters.kube_transport import Transport
from dra_driver.errors import AdapterError
from tests.fakes.scripted_server import OK, ScriptedServer
from tests.waiting import eventually

ZIPPED = gzip.compress(b'{"a":1}')


class Tokens:
    token = "one"

    def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def renew(self) -> None:
        self.token = "two"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.stop()


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


@pytest.fixture
def transport(server: ScriptedServer, tokens: Tokens) -> Iterator[Transport]:
    transport = through(urllib3.PoolManager(), f"http://127.0.0.1:{server.port}/base/", tokens)
    yield transport
    transport.close()


def through(pool: urllib3.PoolManager, url: str, tokens: Tokens) -> Transport:
    return Transport(url, pool=pool, credentials=tokens, user_agent="tests", answer_timeout_s=30.0)


def get(transport: Transport, timeout_s: float = 30.0) -> object:
    return transport.call(
        "GET", "/claims/a%20b", what="get", query={"x": "1 2"}, timeout_s=timeout_s
    )


def test_get_sends_the_same_when_the_connection_is_kept(
    server: ScriptedServer, transport: Transport
) -> None:
    for _ in range(3):
        assert get(transport) == {"a": 1}
    assert server.connections() == [0, 0, 0]
    first, *others = (sorted(head.splitlines()) for _, head in server.heads)
    assert first == sorted(
        [
            "GET /base/claims/a%20b?x=1+2 HTTP/1.1",
            f"Host: 127.0.0.1:{server.port}",
            "Accept-Encoding: identity",
            "Accept: application/json",
            "User-Agent: tests",
            "authorization: Bearer one",
        ]
    )
    assert others == [first, first]


@pytest.mark.parametrize(
    "last",
    [
        OK + ScriptedServer.EOF,
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n{"a":1}',
        b'HTTP/1.0 200 OK\r\n\r\n{"a":1}' + ScriptedServer.EOF,
    ],
    ids=["closed", "told", "old"],
)
def test_get_opens_another_connection_when_the_kept_one_ended(
    server: ScriptedServer, transport: Transport, last: bytes
) -> None:
    server.answers = [OK, last, OK]
    for _ in range(2):
        assert get(transport) == {"a": 1}
    wait_until_dropped(transport)
    assert get(transport) == {"a": 1}
    assert server.connections() == [0, 0, 1]


def test_get_ignores_what_came_unasked(server: ScriptedServer, transport: Transport) -> None:
    get(transport)
    server.say(OK.replace(b'{"a":1}', b'{"a":2}'))
    wait_until_dropped(transport)
    assert get(transport) == {"a": 1}
    assert server.connections() == [0, 1]


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n3\r\n:1}\r\n0\r\n\r\n',
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(ZIPPED)
        + ZIPPED,
    ],
    ids=["chunked", "continue", "gzip"],
)
def test_get_understands_the_answer_when_the_connection_is_kept(
    server: ScriptedServer, transport: Transport, answer: bytes
) -> None:
    server.answers = [OK, answer]
    for _ in range(3):
        assert get(transport) == {"a": 1}
    assert set(server.connections()) == {0}


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (ScriptedServer.EOF, "RemoteDisconnected"),
        (OK[:-2] + ScriptedServer.EOF, "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nContent-Le" + ScriptedServer.EOF, "no answer|no JSON"),
        (b"SSH-2.0\r\n", "BadStatusLine"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", "status 103"),
        (b"", "TimeoutError"),
        (OK[:-2], "TimeoutError"),
    ],
    ids=["gone", "cut", "cut-head", "rubbish", "early", "silent", "stalled"],
)
def test_get_fails_and_gives_the_connection_up_when_the_kept_one_breaks(
    server: ScriptedServer, transport: Transport, broken: bytes, cause: str
) -> None:
    server.answers = [OK, broken, OK]
    get(transport)
    started = time.monotonic()
    with pytest.raises(AdapterError, match=cause) as raised:
        get(transport, 0.3)
    assert time.monotonic() - started < 20.0
    assert f"get at {transport.server}: " in str(raised.value)
    assert not raised.value.permanent
    if not broken.endswith(ScriptedServer.EOF):
        eventually(lambda: server.ended == [0], 30.0, "the client's end of the connection")
    assert get(transport) == {"a": 1}
    assert server.connections() == [0, 0, 1]


def test_get_fails_and_gives_the_new_connection_up_when_its_answer_is_yet_to_come(
    server: ScriptedServer, transport: Transport
) -> None:
    server.answers = [b"HTTP/1.1 103 Early Hints\r\n\r\n", OK]
    with pytest.raises(AdapterError, match=r"no answer .*status 103"):
        get(transport)
    eventually(lambda: server.ended == [0], 30.0, "the client's end of the connection")
    assert get(transport) == {"a": 1}


def test_get_asks_again_with_another_token_when_the_kept_connection_is_refused(
    server: ScriptedServer, transport: Transport
) -> None:
    no = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    server.answers = [OK, no, OK]
    for _ in range(2):
        assert get(transport) == {"a": 1}
    assert server.connections() == [0, 0, 0]
    assert [head.rpartition(" ")[2] for _, head in server.heads] == ["one", "one", "two"]


def test_get_sends_no_line_that_a_token_brings(
    server: ScriptedServer, transport: Transport, tokens: Tokens
) -> None:
    get(transport)
    tokens.token = "one\r\nX-Other: 1"
    with pytest.raises(ValueError, match="Invalid header value"):
        get(transport)
    assert len(server.heads) == 1


def test_close_ends_kept_connections_and_the_next_get_opens_one(
    server: ScriptedServer, transport: Transport
) -> None:
    for _ in range(2):
        get(transport)
    transport.close()
    eventually(lambda: server.ended == [0], 30.0, "the client's end of the connection")
    for _ in range(2):
        assert get(transport) == {"a": 1}
    assert server.connections() == [0, 0, 1, 1]


def test_get_in_flight_is_answered_and_its_connection_ended_when_all_are_closed(
    server: ScriptedServer, transport: Transport
) -> None:
    get(transport)
    server.answers = [b"", OK]
    answers: list[object] = []
    reader = Thread(target=lambda: answers.append(get(transport)), name="reader")
    reader.start()
    eventually(lambda: len(server.heads) == 2, 30.0, "the second request")
    transport.close()
    server.say(OK)
    reader.join(30.0)
    assert answers == [{"a": 1}]
    eventually(lambda: server.ended == [0], 30.0, "the client's end of the connection")


def test_get_names_the_whole_address_when_a_proxy_is_asked(
    server: ScriptedServer, tokens: Tokens
) -> None:
    proxy = urllib3.ProxyManager(f"http://127.0.0.1:{server.port}")
    transport = through(proxy, "http://server.example", tokens)
    for _ in range(2):
        assert get(transport) == {"a": 1}
    transport.close()
    for _, head in server.heads:
        assert head.startswith("GET http://server.example/claims/a%20b?x=1+2 HTTP/1.1\r\n")


@pytest.mark.parametrize("url", ["http://[::1", "http://a:b", "http://", "nonsense://a"])
def test_get_fails_when_the_address_is_none(url: str, tokens: Tokens) -> None:
    transport = through(urllib3.PoolManager(), url, tokens)
    with pytest.raises(AdapterError, match=r"get at .*: no answer"):
        get(transport)


def wait_until_dropped(transport: Transport) -> None:
    idle = transport._pool.connection_from_url(transport.server).pool
    assert idle is not None
    eventually(lambda: not idle.queue[-1].is_connected, 30.0, "the end of the connection")


def test_connection_that_comes_back_late_is_closed_when_the_pool_was_closed_meanwhile() -> None:
    pool = urllib3.HTTPConnectionPool("127.0.0.1", 9)
    connection = HTTPConnection("127.0.0.1", 9)
    ours, theirs = socketpair()
    connection.sock = ours
    idle = pool.pool
    assert idle is not None

    class Late:
        """The pool as who returns something sees it just before it is closed."""

        def __init__(self) -> None:
            self.looks = iter((idle, None))

        @property
        def pool(self) -> object:
            return next(self.looks)

    pool.close()
    _put_back(Late(), connection)  # type: ignore[arg-type]
    assert ours.fileno() == -1
    theirs.close()
