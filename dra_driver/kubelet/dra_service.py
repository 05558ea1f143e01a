"""The DRA services v1 and v1beta1: two spellings of the same two calls."""

from __future__ import annotations

from collections.abc import Iterable
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
        answers = self._each(Verb.PREPARE, request.claims, self._operations.prepare, context)
        # Filled in place: the messages are copied where they are made first and put in then.
        response = self.messages.NodePrepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            if isinstance(answer, Failed):
                entry.error = answer.text
            else:
                for device in answer.value:
                    self.add(entry.devices, device)
        return response

    def NodeUnprepareResources(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        answers = self._each(Verb.UNPREPARE, request.claims, self._operations.unprepare, context)
        response = self.messages.NodeUnprepareResourcesResponse()
        for uid, answer in answers.items():
            entry = response.claims[uid]
            if isinstance(answer, Failed):
                entry.error = answer.text
        return response

    def add(self, devices: Any, device: PreparedDevice) -> Any:
        """Add a device to a message's list, and give its message."""
        # A container names a main request only, so "main/sub" would match no container.
        return devices.add(
            request_names=sorted({name.partition("/")[0] for name in device.requests}),
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )

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

    def add(self, devices: Any, device: PreparedDevice) -> Any:
        message = super().add(devices, device)
        if device.share_id is not None:
            message.share_id = device.share_id
        return message


class _V1Beta1(_Service, v1beta1_grpc.DRAPluginServicer):
    messages = v1beta1
