"""The DRA services v1 and v1beta1: two spellings of the same two calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import grpc

from dra_api.kubelet import dra_v1_pb2 as v1
from dra_api.kubelet import dra_v1_pb2_grpc as v1_grpc
from dra_api.kubelet import dra_v1beta1_pb2 as v1beta1
from dra_api.kubelet import dra_v1beta1_pb2_grpc as v1beta1_grpc
from dra_driver.kubelet.calls import Answer, Calls, Failed, Verb, Work, still_listening
from dra_driver.kubelet.operations import NodeOperations
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.model.record import PreparedDevice


def add_dra_services(server: grpc.Server, operations: NodeOperations, calls: Calls) -> None:
    """Serve v1 and v1beta1."""
    v1_grpc.add_DRAPluginServicer_to_server(_V1(operations, calls), server)
    v1beta1_grpc.add_DRAPluginServicer_to_server(_V1Beta1(operations, calls), server)


class _Service:
    """Both calls in the messages of one version; `messages` is its generated module."""

    messages: Any

    def __init__(self, operations: NodeOperations, calls: Calls) -> None:
        self._operations = operations
        self._calls = calls

    def NodePrepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        answers = self._each(Verb.PREPARE, request.claims, self._prepare, context)
        answer_of = partial(_message, self.messages.NodePrepareResourceResponse)
        return self.messages.NodePrepareResourcesResponse(
            claims={uid: answer_of(answer) for uid, answer in answers.items()}
        )

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        answers = self._each(Verb.UNPREPARE, request.claims, self._unprepare, context)
        answer_of = partial(_message, self.messages.NodeUnprepareResourceResponse)
        return self.messages.NodeUnprepareResourcesResponse(
            claims={uid: answer_of(answer) for uid, answer in answers.items()}
        )

    def device(self, device: PreparedDevice) -> Any:
        # A container names a main request only, so "main/sub" would match no container.
        return self.messages.Device(
            request_names=sorted({name.partition("/")[0] for name in device.requests}),
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )

    def _prepare(self, ref: ClaimRef, deadline: Deadline) -> Any:
        devices = self._operations.prepare(ref, deadline)
        return self.messages.NodePrepareResourceResponse(
            devices=[self.device(each) for each in devices]
        )

    def _unprepare(self, ref: ClaimRef, deadline: Deadline) -> Any:
        self._operations.unprepare(ref, deadline)
        return self.messages.NodeUnprepareResourceResponse()

    def _each(
        self, verb: Verb, claims: Iterable[Any], work: Work[Any], context: grpc.ServicerContext
    ) -> dict[str, Answer[Any]]:
        def listened(ref: ClaimRef, deadline: Deadline) -> Any:
            still_listening(ref, active=context.is_active())
            return work(ref, deadline)

        call = self._calls.enter()
        if call is None:
            context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "the driver is shutting down; the kubelet tries again with its next instance",
            )
        with call:
            deadline = self._calls.deadline(context.time_remaining())
            refs = tuple(ClaimRef(each.namespace, each.name, each.uid) for each in claims)
            return self._calls.each(verb, refs, listened, deadline=deadline)


class _V1(_Service, v1_grpc.DRAPluginServicer):
    messages = v1

    def device(self, device: PreparedDevice) -> v1.Device:
        message: v1.Device = super().device(device)
        if device.share_id is not None:
            message.share_id = device.share_id
        return message


class _V1Beta1(_Service, v1beta1_grpc.DRAPluginServicer):
    messages = v1beta1


def _message(message: Callable[..., Any], answer: Answer[Any]) -> Any:
    return message(error=answer.text) if isinstance(answer, Failed) else answer.value
