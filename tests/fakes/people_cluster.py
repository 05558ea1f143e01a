"""A cluster as a person's commands meet it: pods, a kubelet behind a proxy, and exec.

The API server and the sockets are real, what is behind them is scripted. Commands of ours in a
plugin's pod run here, on a folder that stands for the node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.exec_stream import ExecStream, accept

NODE = "node-a"
Command = Callable[[list[str], ExecStream], int]


def pod_json(
    name: str = "trainer",
    *,
    containers: tuple[str, ...] = ("main",),
    node: str = NODE,
    claims: bool = True,
    state: str = "running",
    **more: Any,
) -> dict[str, Any]:
    claimed = {"claims": [{"name": "gpu"}]} if claims else {}
    return {
        "kind": "Pod",
        "metadata": {"namespace": "team", "name": name, "uid": f"uid-{name}"},
        "spec": {
            **({"nodeName": node} if node else {}),
            "containers": [{"name": each, "resources": claimed} for each in containers],
        },
        "status": {
            "phase": "Running" if state == "running" else "Pending",
            "containerStatuses": [{"name": each, "state": {state: {}}} for each in containers],
            **more,
        },
    }


def plugin_pod(node: str = NODE, *, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": "gpuslice",
            "name": f"gpuslice-plugin-{node}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            **metadata,
        },
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


@dataclass(slots=True)
class PeopleCluster:
    """Attributes may be changed while it serves.

    Attributes:
        pods: of all namespaces.
        denied: resources with their subresource that the API server refuses.
        answer: of the kubelet.
        command: what `gpuslice` in a plugin's pod does, by its arguments.
        asked: paths that kubelets were asked.
        ran: commands, as node and arguments; `entered`: names of their pods.
    """

    pods: list[dict[str, Any]] = field(default_factory=lambda: [pod_json(), plugin_pod()])
    denied: set[str] = field(default_factory=set)
    answer: tuple[int, str] = (200, '{"items": ["/var/lib/kubelet/checkpoints/a.tar"]}')
    command: Command = lambda _arguments, _stream: 0
    asked: list[str] = field(default_factory=list)
    ran: list[tuple[str, list[str]]] = field(default_factory=list)
    entered: list[str] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def serving(self) -> Iterator[PeopleCluster]:
        cluster = self

        class Handler(_Handler):
            world = cluster

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, args=(0.05,), name="people-cluster")
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def kubeconfig(self, folder: Path, *, namespace: str = "team") -> Path:
        context = {"cluster": "c", "user": "u", "namespace": namespace}
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [{"name": "u", "user": {"token": "secret"}}],
                    "contexts": [{"name": "c", "context": context}],
                    "current-context": "c",
                }
            )
        )
        return path


class _Handler(BaseHTTPRequestHandler):
    world: PeopleCluster
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret"
        url = urlsplit(self.path)
        _, _, _, _, namespace, _, *rest = url.path.split("/")
        query = parse_qs(url.query)
        if self._refused("pods/exec" if rest[1:] else "pods" if rest else "pods/list"):
            return
        if rest[1:] == ["exec"]:
            self._exec(namespace, rest[0], query["command"])
        elif rest:
            self._pod(namespace, rest[0])
        else:
            (node,) = query.get("fieldSelector", ["spec.nodeName="])
            wanted = node.removeprefix("spec.nodeName=")
            found = [
                each
                for each in self.world.pods
                if each["metadata"]["namespace"] == namespace
                and wanted in {"", each["spec"].get("nodeName")}
            ]
            self._send(200, json.dumps({"kind": "PodList", "items": found}))

    def do_POST(self) -> None:
        if self._refused("nodes/proxy"):
            return
        self.world.asked.append(self.path)
        self._send(*self.world.answer)

    def _pod(self, namespace: str, name: str) -> None:
        for each in self.world.pods:
            if (each["metadata"]["namespace"], each["metadata"]["name"]) == (namespace, name):
                self._send(200, json.dumps(each))
                return
        status = {"kind": "Status", "message": "not found", "details": {"name": name}}
        self._send(404, json.dumps(status))

    def _exec(self, namespace: str, name: str, command: list[str]) -> None:
        (pod,) = (each for each in self.world.pods if each["metadata"]["name"] == name)
        self.world.entered.append(name)
        self.world.ran.append((pod["spec"]["nodeName"], command[1:]))
        stream = accept(self)
        assert command[0] == "gpuslice"
        stream.end(self.world.command(command[1:], stream))
        self.close_connection = True

    def _refused(self, resource: str) -> bool:
        if resource not in self.world.denied:
            return False
        message = f'User "jane" cannot use resource "{resource}"'
        self._send(403, json.dumps({"kind": "Status", "reason": "Forbidden", "message": message}))
        return True

    def _send(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
