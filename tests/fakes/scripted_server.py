"""An HTTP server that says what a test wants, sense or not."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'


class ScriptedServer:
    """Answers requests with bytes in turn, the last ones again and again.

    Attributes:
        answers: those to come; an empty one is silence, one that ends with EOF is the
            connection's last.
        heads: all requests, each with the number of its connection.
        ended: connections whose client has closed them.
    """

    EOF = b"<eof>"

    def __init__(self) -> None:
        self.answers = [OK]
        self.heads: list[tuple[int, str]] = []
        self.ended: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [Thread(target=self._accept, name="scripted")]
        self._threads[0].start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()

    def say(self, unasked: bytes) -> None:
        """Send something on the latest connection."""
        self._open[-1].sendall(unasked)

    def connections(self) -> list[int]:
        """Of each request."""
        return [number for number, _ in self.heads]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = Thread(target=self._serve, args=(connection, len(self._open)), name="scripted")
            self._open.append(connection)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        rest = b""
        try:
            while received := connection.recv(65536):
                *heads, rest = (rest + received).split(b"\r\n\r\n")
                for head in heads:
                    self.heads.append((number, head.decode()))
                    answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                    connection.sendall(answer.removesuffix(self.EOF))
                    if answer.endswith(self.EOF):
                        connection.shutdown(socket.SHUT_RDWR)
                        return
        except OSError:
            pass
        self.ended.append(number)
