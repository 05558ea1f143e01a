"""The server's side of an exec over a WebSocket."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

from websocket import ABNF

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FRAME_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class ExecStream:
    """Where a command writes."""

    file: Any

    def output(self, content: bytes) -> None:
        for start in range(0, len(content), _FRAME_BYTES):
            self.frame(1, content[start : start + _FRAME_BYTES])

    def errors(self, text: str) -> None:
        self.frame(2, text.encode())

    def end(self, status: int) -> None:
        if status == 0:
            self.status({"status": "Success"})
        else:
            cause = {"reason": "ExitCode", "message": str(status)}
            details = {"causes": [cause]}
            self.status({"status": "Failure", "reason": "NonZeroExitCode", "details": details})

    def status(self, body: object) -> None:
        """Tell the end, and close."""
        self.frame(3, json.dumps(body).encode())
        self.close()

    def close(self) -> None:
        self._send(ABNF.create_frame((1000).to_bytes(2, "big"), ABNF.OPCODE_CLOSE))

    def frame(self, channel: int, content: bytes) -> None:
        self._send(ABNF.create_frame(bytes([channel]) + content, ABNF.OPCODE_BINARY))

    def _send(self, frame: ABNF) -> None:
        # A server's frames bear no mask.
        frame.mask_value = 0
        self.file.write(frame.format())
        self.file.flush()


def accept(request: BaseHTTPRequestHandler) -> ExecStream:
    """Answer the handshake of a request."""
    key = request.headers["Sec-WebSocket-Key"]
    proof = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    request.send_response(101)
    request.send_header("Upgrade", "websocket")
    request.send_header("Connection", "Upgrade")
    request.send_header("Sec-WebSocket-Accept", proof)
    offered = request.headers["Sec-WebSocket-Protocol"].split(",")
    request.send_header("Sec-WebSocket-Protocol", offered[0].strip())
    request.end_headers()
    request.wfile.flush()
    return ExecStream(request.wfile)
