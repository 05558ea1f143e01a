"""A node as commands in its plugin's pod see it: archives, and a scripted checkpoint service."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_driver.app import node_side
from dra_driver.errors import GpusliceError
from dra_driver.settings import Settings, load
from tests.fakes.exec_stream import ExecStream


class HookError(GpusliceError):
    """What the service refuses a call with."""


@dataclass(slots=True)
class PeopleNode:
    """Attributes.

    Attributes:
        root: `checkpoints` below it is the kubelet's folder.
        operations: what the service lists.
        refuse: texts with which it refuses, by method.
        calls: of its methods.
        spoil: what becomes of an archive that is sent.
    """

    root: Path
    operations: list[dict[str, Any]] = field(default_factory=list)
    refuse: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    spoil: Callable[[bytes], bytes] = lambda content: content
    imported: list[dict[str, str]] = field(default_factory=list)

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def command(self, arguments: list[str], stream: ExecStream) -> int:
        """Be `gpuslice` in the plugin's pod."""
        try:
            self._run(arguments, stream)
        except GpusliceError as error:
            stream.errors(f"gpuslice: {error}\n")
            return 1
        return 0

    def called(self, method: str) -> list[dict[str, Any]]:
        return [request for name, request in self.calls if name == method]

    def _run(self, arguments: list[str], stream: ExecStream) -> None:
        match arguments:
            case ["hook", method, request]:
                answer = self._hook(method, json.loads(request))
                stream.output(json.dumps(answer).encode())
            case ["archive", "check"]:
                node_side.check_archives(self._settings())
            case ["archive", "facts", path]:
                facts = node_side.archive_facts(self._settings(), path)
                stream.output(json.dumps(facts).encode())
            case ["archive", "send", path]:
                content = io.BytesIO()
                digest = node_side.send_archive(self._settings(), path, content)
                stream.output(self.spoil(content.getvalue()))
                stream.errors(f"{digest}\n")
            case ["archive", "import", path, *options]:
                self.imported.append(
                    {"path": path, **dict(zip(options[::2], options[1::2], strict=True))}
                )
            case _:
                raise HookError(f"no such command {arguments}")

    def _hook(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((method, request))
        if method in self.refuse:
            raise HookError(f"{method} was refused: {self.refuse[method]}")
        if method == "ListOperations":
            return {"operations": self.operations}
        if method == "GetOperation":
            for each in self.operations:
                if each["operationId"] == request["operationId"]:
                    return each
            raise HookError("NOT_FOUND: there is no such operation")
        return {"operationId": request["operationId"]}

    def _settings(self) -> Settings:
        return load({"checkpoints_dir": str(self.checkpoints)})


def operation(
    name: str = "op-1",
    *,
    state: str = "DONE",
    kind: str = "CHECKPOINT",
    manifest: dict[str, Any] | None = None,
    pod: str = "trainer",
    **more: Any,
) -> dict[str, Any]:
    """An operation in the JSON of the protocol; began with the archive of `fakes.archives`."""
    return {
        "operationId": name,
        "kind": f"KIND_{kind}",
        "state": f"STATE_{state}",
        "target": {
            "podNamespace": "team",
            "podName": pod,
            "podUid": f"uid-{pod}",
            "containerName": "main",
        },
        "startedSeconds": 1796058010.5,
        "changedSeconds": 1796058011.0,
        "remainingSeconds": 0.0,
        "message": "",
        "manifestJson": json.dumps(manifest) if manifest is not None else "",
        **more,
    }
