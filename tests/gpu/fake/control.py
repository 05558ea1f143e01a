"""Stands in for nvidia-cuda-mps-control; replies are those of 550 as measured, as far as they go."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])


class Control:
    """Settings of one daemon."""

    def __init__(self) -> None:
        self.percent = 100.0
        self.limits: dict[str, str] = {}
        self.servers: list[int] = []
        self.ended = False

    def answer(self, command: str) -> str:
        name, *operands = command.split()
        replies: dict[str, Callable[..., str]] = {
            "get_server_list": lambda: "\n".join(map(str, self.servers)),
            "get_client_list": lambda _server: "",
            "start_server": lambda *_: self._serve(os.getpid()),
            "shutdown_server": lambda *_: self._serve(),
            "set_default_active_thread_percentage": self._percent,
            "get_default_active_thread_percentage": lambda: str(self.percent),
            "set_default_device_pinned_mem_limit": self._limit,
            "get_default_device_pinned_mem_limit": lambda device: self.limits.get(device, ""),
            "terminate_client": lambda *_: "0",
            "sm_partition": lambda _verb, gpu, _chunks: f"{gpu}/1",
            "quit": self._quit,
        }
        reply = replies.get(name)
        return f'Unknown command "{command}"' if reply is None else reply(*operands)

    def _serve(self, *servers: int) -> str:
        self.servers = [*servers]
        return ""

    def _percent(self, value: str) -> str:
        self.percent = float(value)
        return str(self.percent)

    def _limit(self, device: str, value: str) -> str:
        self.limits[device] = value
        return ""

    def _quit(self, *_: str) -> str:
        self.ended = True
        return ""


def serve() -> int:
    control = Control()
    for name in ("control", "control_privileged"):
        (FOLDER / name).unlink(missing_ok=True)
    (FOLDER / "control_privileged").touch(mode=0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(FOLDER / "control"))
        (FOLDER / "control").chmod(0o666)
        listener.listen()
        while not control.ended:
            with listener.accept()[0] as peer:
                commands = peer.makefile("r").read().splitlines()
                replies = [control.answer(each) for each in commands]
                peer.sendall("\n".join(filter(None, replies)).encode())
    return 0


def tell() -> int:
    commands = sys.stdin.read()
    sockets = FOLDER / "control_privileged"
    privileged = sockets.exists() and os.geteuid() in {0, sockets.stat().st_uid}
    if not privileged and any(each.startswith(("set_", "quit")) for each in commands.splitlines()):
        print(f"Insufficient privileges for UID {os.geteuid()}.")
        return 0
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(FOLDER / "control"))
        except OSError:
            print("Cannot find MPS control daemon process", file=sys.stderr)
            return 1
        client.sendall(commands.encode())
        client.shutdown(socket.SHUT_WR)
        print(client.makefile("r").read())
    return 0


if __name__ == "__main__":
    sys.exit(serve() if "-f" in sys.argv else tell())
