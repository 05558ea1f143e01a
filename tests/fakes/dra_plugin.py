"""A driver with bad manners, for tests of the embedded kubelet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import pluginregistration_v1_pb2 as reg
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as reg_grpc


@dataclass
class FakeDraPlugin(v1_grpc.DRAPluginServicer, reg_grpc.RegistrationServicer):
    """Registers as `info` says and answers prepares and unprepares with `errors` by UID."""

    info: reg.PluginInfo
    errors: dict[str, str] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)
    extra: set[str] = field(default_factory=set)
    failing_notify: bool = False
    prepares: list[list[str]] = field(default_factory=list)
    unprepares: list[list[str]] = field(default_factory=list)
    notified: list[tuple[bool, str]] = field(default_factory=list)

    def GetInfo(self, request: Any, context: grpc.ServicerContext) -> reg.PluginInfo:  # noqa: N802
        return self.info

    def NotifyRegistrationStatus(  # noqa: N802
        self, request: Any, context: grpc.ServicerContext
    ) -> reg.RegistrationStatusResponse:
        self.notified.append((request.plugin_registered, request.error))
        if self.failing_notify:
            context.abort(grpc.StatusCode.INTERNAL, "no thanks")
        return reg.RegistrationStatusResponse()

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        uids = [claim.uid for claim in request.claims]
        self.prepares.append(uids)
        answer = v1.NodePrepareResourcesResponse()
        for uid in self._answered(uids):
            if error := self.errors.get(uid, ""):
                answer.claims[uid].error = error
            else:
                device = answer.claims[uid].devices.add()
                device.request_names.append("gpu")
                device.cdi_device_ids.append(f"fake/claim={uid}")
        return answer

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        uids = [claim.uid for claim in request.claims]
        self.unprepares.append(uids)
        answer = v1.NodeUnprepareResourcesResponse()
        for uid in self._answered(uids):
            answer.claims[uid].error = self.errors.get(uid, "")
        return answer

    def _answered(self, uids: list[str]) -> list[str]:
        return sorted((set(uids) - self.skipped) | self.extra)


@contextmanager
def serving(root: Path, name: str = "fake.io", **options: Any) -> Iterator[FakeDraPlugin]:
    """Serve both services on one server; `options` are PluginInfo's or FakeDraPlugin's."""
    known = {"type", "name", "endpoint", "supported_versions"}
    told = {key: options.pop(key) for key in list(options) if key in known}
    dra = root / "plugins" / name / "dra.sock"
    registration = root / "plugins_registry" / f"{name}-reg.sock"
    for path in (dra, registration):
        path.parent.mkdir(parents=True, exist_ok=True)
    info = {
        "type": "DRAPlugin",
        "name": name,
        "endpoint": str(dra),
        "supported_versions": ["v1.DRAPlugin"],
    }
    plugin = FakeDraPlugin(info=reg.PluginInfo(**(info | told)), **options)
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool)
        v1_grpc.add_DRAPluginServicer_to_server(plugin, server)
        reg_grpc.add_RegistrationServicer_to_server(plugin, server)
        server.add_insecure_port(f"unix:{dra}")
        server.add_insecure_port(f"unix:{registration}")
        server.start()
        try:
            yield plugin
        finally:
            server.stop(grace=0.1).wait()
