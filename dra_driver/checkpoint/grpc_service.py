"""The service `gpuslice.checkpoint.v1alpha1.CheckpointHook`, on a socket that is root's alone.

Who may call is decided by the socket's mode, 0600: connecting needs the right to write to it. There
is no second look at the caller's credentials, as grpcio does not give those of a Unix socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import NoReturn, TypeVar

import grpc

from dra_api.checkpoint import checkpoint_v1alpha1_pb2 as api
from dra_api.checkpoint import checkpoint_v1alpha1_pb2_grpc as api_grpc
from dra_driver import log
from dra_driver.checkpoint import grpc_messages as messages
from dra_driver.checkpoint.grpc_messages import InvalidMessage
from dra_driver.checkpoint.handler import Handler
from dra_driver.errors import AdapterError
from dra_driver.model.checkpoint import Code, HookAnswer, HookRequest, OperationState
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Clock
from dra_driver.sockets import bind_server, bound_path, make_way, private_folder, publish

WORKERS = 16
BEFORE_MAX = 8
AFTER_MAX = 4
"""Calls before, and after a dump or restore at one time: each may hang as long as a process does.
Those who look at operations and abort them find a worker all the same."""

_LONGEST_S = 600.0
_ABORT_S = 30.0
"""Of an abort, which waits for whoever works on the operation."""
_MARGIN_S = 0.5
_STOP_S = 5.0
_DETAILS_MAX = 2048
_ENDED_WELL = (OperationState.DONE,)

_log = log.get(__name__)
M = TypeVar("M")


class CheckpointHookService(api_grpc.CheckpointHookServicer):
    """Spells the handler's answers as the protocol says."""

    def __init__(self, handler: Handler, *, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock
        self._before = BoundedSemaphore(BEFORE_MAX)
        self._after = BoundedSemaphore(AFTER_MAX)

    def PreCheckpoint(  # noqa: N802
        self, request: api.PreCheckpointRequest, context: grpc.ServicerContext
    ) -> api.HookResponse:
        return self._called(messages.pre_checkpoint, request, context, self._before)

    def PostCheckpoint(  # noqa: N802
        self, request: api.PostCheckpointRequest, context: grpc.ServicerContext
    ) -> api.HookResponse:
        return self._called(messages.post_checkpoint, request, context, self._after)

    def PreRestore(  # noqa: N802
        self, request: api.PreRestoreRequest, context: grpc.ServicerContext
    ) -> api.HookResponse:
        return self._called(messages.pre_restore, request, context, self._before)

    def PostRestore(  # noqa: N802
        self, request: api.PostRestoreRequest, context: grpc.ServicerContext
    ) -> api.HookResponse:
        return self._called(messages.post_restore, request, context, self._after)

    def GetOperation(  # noqa: N802
        self, request: api.OperationRef, context: grpc.ServicerContext
    ) -> api.Operation:
        with _spelled(context):
            named = messages.operation_id(request.operation_id)
            return self._operation(self._handler.get(named), context)

    def ListOperations(  # noqa: N802
        self, request: api.ListOperationsRequest, context: grpc.ServicerContext
    ) -> api.ListOperationsResponse:
        with _spelled(context):
            now_s = self._clock.monotonic_s()
            left_out = _ENDED_WELL if request.unfinished_or_failed else ()
            return api.ListOperationsResponse(
                operations=[
                    messages.operation_message(each, now_s)
                    for each in self._handler.operations()
                    if each.state not in left_out
                ]
            )

    def Abort(  # noqa: N802
        self, request: api.AbortRequest, context: grpc.ServicerContext
    ) -> api.Operation:
        with _spelled(context):
            named = messages.operation_id(request.operation_id)
            deadline = self._deadline(context, _ABORT_S)
            answer = self._handler.abort(named, deadline, acknowledge=request.acknowledge)
            return self._operation(answer, context)

    def _called(
        self,
        decode: Callable[[M], HookRequest],
        message: M,
        context: grpc.ServicerContext,
        room: BoundedSemaphore,
    ) -> api.HookResponse:
        with _spelled(context), _taken(room, context):
            request = decode(message)
            if not context.is_active():
                # It waited for a worker until its caller had left.
                _abort(context, Code.UNAVAILABLE, "nobody waits for this any more")
            answer = self._handler.call(request, self._deadline(context, _LONGEST_S))
            if answer.code is not Code.OK:
                _abort(context, answer.code, answer.text)
            response = messages.hook_response(answer, request)
            if answer.operation is not None:
                now_s = self._clock.monotonic_s()
                response.operation.CopyFrom(messages.operation_message(answer.operation, now_s))
            return response

    def _operation(self, answer: HookAnswer, context: grpc.ServicerContext) -> api.Operation:
        if answer.code is not Code.OK or answer.operation is None:
            _abort(context, answer.code, answer.text)
        return messages.operation_message(answer.operation, self._clock.monotonic_s())

    def _deadline(self, context: grpc.ServicerContext, longest_s: float) -> Deadline:
        left_s = context.time_remaining()
        bounded_s = longest_s if left_s is None else min(left_s, longest_s)
        return Deadline(self._clock.monotonic_s() + max(0.0, bounded_s - _MARGIN_S))


class CheckpointHookServer:
    """Serves from `start` to `stop`; each is called once, by who holds the instance's lock."""

    def __init__(self, path: Path, service: CheckpointHookService) -> None:
        self._path = path
        self._service = service
        self._owned = ExitStack()

    def start(self) -> None:
        """Raises FatalError where the socket cannot be made, or another process serves there."""
        with ExitStack() as undo:
            make_way(self._path)
            pool = undo.enter_context(ThreadPoolExecutor(WORKERS, thread_name_prefix="checkpoint"))
            server = grpc.server(pool)
            undo.callback(lambda: server.stop(_STOP_S).wait())
            api_grpc.add_CheckpointHookServicer_to_server(self._service, server)
            bound = bound_path(self._path)
            with private_folder(bound.parent):
                bind_server(server.add_insecure_port, self._path, bound=bound)
                server.start()
                undo.callback(publish(self._path, bound=bound).withdraw)
            self._owned = undo.pop_all()
        _log.info("Serving controllers of checkpoints", socket=str(self._path))

    def stop(self) -> None:
        """Let calls in flight finish for some seconds."""
        self._owned.close()


@contextmanager
def _taken(room: BoundedSemaphore, context: grpc.ServicerContext) -> Iterator[None]:
    if not room.acquire(blocking=False):
        text = "too many calls like this are under way on this node: try again when one has ended"
        _abort(context, Code.RESOURCE_EXHAUSTED, text)
    try:
        yield
    finally:
        room.release()


@contextmanager
def _spelled(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except InvalidMessage as error:
        _abort(context, Code.INVALID_ARGUMENT, str(error))
    except AdapterError as error:
        _abort(context, Code.UNAVAILABLE, str(error))


def _abort(context: grpc.ServicerContext, code: Code, text: str) -> NoReturn:
    context.abort(grpc.StatusCode[code.value], " ".join(text.split())[:_DETAILS_MAX])
    raise AssertionError("abort does not return")
