"""Calls to the checkpoint service of this node, in the JSON of its protocol.

JSON, because requests and answers go on through command lines. Its names are those of the .proto
file, in camel case.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dra_api.checkpoint import checkpoint_v1alpha1_pb2 as checkpoint
from dra_driver.errors import AdapterError
from dra_driver.sockets import is_dead_socket

_SERVICE = checkpoint.DESCRIPTOR.services_by_name["CheckpointHook"]
METHODS: Final = tuple(method.name for method in _SERVICE.methods)

_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # Manifests of a thousand operations may take more than the usual 4 MiB.
    ("grpc.max_receive_message_length", -1),
)


class HookRefused(AdapterError):  # noqa: N818 - reads as the verdict that it is
    """The service refused the call.

    Attributes:
        code: name of gRPC's status.
        reason: what the service said.
    """

    def __init__(self, method: str, code: str, reason: str) -> None:
        super().__init__(f"{method} was refused: {code}: {reason}", permanent=True)
        self.code = code
        self.reason = reason


def call_hook(
    socket: Path, method: str, request: Mapping[str, Any], *, timeout_s: float
) -> dict[str, Any]:
    """Call a method of the service, and give its answer with all its fields.

    Raises:
        HookRefused: the service refused.
        AdapterError: there is no such method, the request does not fit it, or nobody answers.
    """
    found = _SERVICE.methods_by_name.get(method)
    if found is None:
        raise AdapterError(f"no method {method!r}: name one of {', '.join(METHODS)}")
    message: Message = GetMessageClass(found.input_type)()
    try:
        ParseDict(dict(request), message)
    except ParseError as error:
        raise AdapterError(f"the request does not fit {method}: {error}") from error
    answers = GetMessageClass(found.output_type)
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        call: Any = channel.unary_unary(
            f"/{_SERVICE.full_name}/{method}",
            request_serializer=lambda sent: sent.SerializeToString(),
            response_deserializer=answers.FromString,
        )
        try:
            answer = call(message, timeout=timeout_s)
        except grpc.RpcError as error:
            raise _failed(error, method=method, socket=socket) from error
    return dict(MessageToDict(answer, always_print_fields_with_no_presence=True))


def _failed(error: Any, *, method: str, socket: Path) -> AdapterError:
    code, reason = error.code(), str(error.details() or "")
    # The service speaks of a try again too; it is there then.
    if code is grpc.StatusCode.UNAVAILABLE and (not socket.is_socket() or is_dead_socket(socket)):
        return AdapterError(
            f"no checkpoint service answers on {socket}: run gpuslice plugin with"
            " --checkpoint-hook true on this node, and give --checkpoint-socket what it has"
        )
    return HookRefused(method, code.name, reason)
