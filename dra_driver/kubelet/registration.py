"""The service by which the kubelet learns of this driver, and what it thought of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc

from dra_api.kubelet import pluginregistration_v1_pb2 as pb
from dra_api.kubelet import pluginregistration_v1_pb2_grpc as pb_grpc
from dra_driver import log
from dra_driver.kubelet.calls import notify
from dra_driver.ports import Recorder
from dra_driver.state.current import Current

PLUGIN_TYPE = "DRAPlugin"
SUPPORTED_VERSIONS = (
    "v1.DRAPlugin",
    "v1beta1.DRAPlugin",
    "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth",
)
"""Short service names, most preferred first: the kubelet takes the first one it knows."""

_log = log.get(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What the kubelet said last.

    Attributes:
        registered: it accepted the driver.
        refusal: why it did not, in its words; empty otherwise.
        answers: how often it has said anything; every kubelet start adds at least one.
    """

    registered: bool = False
    refusal: str = ""
    answers: int = 0


class RegistrationService(pb_grpc.RegistrationServicer):
    """Answers from memory: GetInfo is due within 1 s whatever the node is busy with.

    Args:
        endpoint: of the DRA services.
        state: set on every notification.
        on_registered: called after each acceptance, on the kubelet's thread, so it only wakes
            somebody; a kubelet that started has deleted this node's ResourceSlices or soon will.
    """

    def __init__(
        self,
        *,
        driver: str,
        endpoint: Path,
        state: Current[Registration],
        on_registered: Callable[[], None],
        recorder: Recorder,
    ) -> None:
        self._info = pb.PluginInfo(
            type=PLUGIN_TYPE,
            name=driver,
            endpoint=str(endpoint),
            supported_versions=SUPPORTED_VERSIONS,
        )
        self._state = state
        self._on_registered = on_registered
        self._recorder = recorder

    def add_to(self, server: grpc.Server) -> None:
        pb_grpc.add_RegistrationServicer_to_server(self, server)

    def GetInfo(  # noqa: N802
        self,
        request: pb.InfoRequest,  # noqa: ARG002
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> pb.PluginInfo:
        return self._info

    def NotifyRegistrationStatus(  # noqa: N802
        self,
        request: pb.RegistrationStatus,
        context: grpc.ServicerContext,  # noqa: ARG002
    ) -> pb.RegistrationStatusResponse:
        before = self._state.get()
        now = replace(before, registered=request.plugin_registered, answers=before.answers + 1)
        if request.plugin_registered:
            _log.info("The kubelet registered the driver", driver=self._info.name)
            self._state.set(replace(now, refusal=""))
            notify(self._on_registered)
        else:
            refusal = request.error or "the kubelet gave no reason"
            _log.error("The kubelet refused the driver", driver=self._info.name, reason=refusal)
            self._state.set(replace(now, refusal=refusal))
        self._recorder.count(
            "registrations_total", outcome="accepted" if request.plugin_registered else "refused"
        )
        return pb.RegistrationStatusResponse()
