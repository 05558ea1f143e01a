"""The service `gpuslice.mpsd.v1alpha1.Mpsd` over the supervisor of this node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition
from typing import NoReturn, Protocol

import grpc

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_api.mpsd import mpsd_v1alpha1_pb2_grpc as mpsd_grpc
from dra_driver import log
from dra_driver.errors import AdapterError, ClaimError, NotFound, NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid
from dra_driver.model.mps import GpuSharing
from dra_driver.model.share import GpuShare
from dra_driver.mps.messages import (
    InvalidMessage,
    client_of,
    gpu_state,
    node_state,
    shares_of,
)
from dra_driver.ports import ClientTerminator, Clock, SharingStates, SharingWatch

WAITERS_PER_GPU = 4
"""Apply calls that may wait behind the one that works on a GPU."""

STREAMS_MAX = 4
"""A plugin has one stream, two plugins of a rolling update have two; each holds a thread."""

REASON_KEY = "gpuslice-reason"
"""Trailing metadata of every error of this service: tells it from one of the connection."""

PERMANENT_KEY = "gpuslice-permanent"
"""Trailing metadata, present where the same request can never succeed."""

ANSWER_MARGIN_S = 0.5
"""The supervisor's deadline is that much earlier, so that its answer finds somebody listening."""

_LONGEST_S = 120.0
_DETAILS_MAX = 2048

_log = log.get(__name__)


class Supervisor(SharingStates, ClientTerminator, Protocol):
    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        """As `ShareSupervisor.apply`."""
        ...

    def state(self, gpu: GpuUuid) -> GpuSharing:
        """Give the newest state of one GPU; of one that is not known, that it is free."""
        ...


class MpsdService(mpsd_grpc.MpsdServicer):
    """Checks requests, bounds how many wait, and spells errors as the protocol says."""

    def __init__(self, supervisor: Supervisor, *, clock: Clock) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._changed = Condition()
        self._applying: dict[GpuUuid, int] = {}
        self._calls = 0
        self._watches: set[SharingWatch] = set()
        self._closing = False

    def close(self) -> None:
        """Refuse calls from now on and end all streams."""
        with self._changed:
            self._closing = True
            watches = tuple(self._watches)
        for watch in watches:
            watch.close()

    def drained(self, timeout_s: float) -> bool:
        """Wait until no call is in flight; False: some still were when the time was over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._calls == 0, timeout_s)

    def Apply(  # noqa: N802
        self, request: mpsd.ApplyRequest, context: grpc.ServicerContext
    ) -> mpsd.GpuState:
        with self._call(context), _spelled(context):
            shares = shares_of(request)
            gpu = GpuUuid(request.gpu_uuid)
            with self._turn(gpu):
                # One that was given up while it was queued must not undo a newer set.
                if not context.is_active():
                    raise NotReady(Reason.OUT_OF_TIME, f"GPU {gpu}: the caller gave up")
                self._supervisor.apply(gpu, shares, self._deadline(context))
                # The plugin tells of its claims already, and a line is a tenth of a share's time.
                _log.debug("Shares applied", gpu=gpu, shares=[share.id for share in shares])
            return gpu_state(self._supervisor.state(gpu))

    def Get(  # noqa: N802
        self,
        request: mpsd.GetRequest,
        context: grpc.ServicerContext,
    ) -> mpsd.NodeState:
        del request
        with self._call(context), _spelled(context):
            watch = self._supervisor.watch()
            try:
                return node_state(next(iter(watch), ()))
            finally:
                watch.close()

    def Watch(  # noqa: N802
        self,
        request: mpsd.WatchRequest,
        context: grpc.ServicerContext,
    ) -> Iterator[mpsd.NodeState]:
        del request
        with self._call(context), _spelled(context), self._watched(context) as watch:
            for states in watch:
                if not context.is_active():
                    return
                yield node_state(states)

    def TerminateClient(  # noqa: N802
        self, request: mpsd.TerminateClientRequest, context: grpc.ServicerContext
    ) -> mpsd.TerminateClientResponse:
        with self._call(context), _spelled(context):
            gpu, pid = client_of(request)
            self._supervisor.terminate_client(gpu, pid, self._deadline(context))
            _log.info("Client terminated", gpu=gpu, client=pid)
            return mpsd.TerminateClientResponse()

    def _deadline(self, context: grpc.ServicerContext) -> Deadline:
        remaining_s = context.time_remaining()
        left_s = _LONGEST_S if remaining_s is None else min(remaining_s, _LONGEST_S)
        return Deadline(self._clock.monotonic_s() + max(0.0, left_s - ANSWER_MARGIN_S))

    @contextmanager
    def _call(self, context: grpc.ServicerContext) -> Iterator[None]:
        with self._changed:
            closing = self._closing
            if not closing:
                self._calls += 1
        if closing:
            _abort(
                context,
                grpc.StatusCode.UNAVAILABLE,
                "gpuslice mpsd is stopping; it is tried again",
                reason=Reason.SHUTTING_DOWN,
            )
        try:
            yield
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()

    @contextmanager
    def _turn(self, gpu: GpuUuid) -> Iterator[None]:
        with self._changed:
            count = self._applying.get(gpu, 0)
            if count <= WAITERS_PER_GPU:
                self._applying[gpu] = count + 1
        if count > WAITERS_PER_GPU:
            raise NotReady(
                Reason.DEVICE_BUSY,
                f"GPU {gpu} is busy: {WAITERS_PER_GPU} calls wait for it; it is tried again",
            )
        try:
            yield
        finally:
            with self._changed:
                self._applying[gpu] -= 1
                if not self._applying[gpu]:
                    del self._applying[gpu]

    @contextmanager
    def _watched(self, context: grpc.ServicerContext) -> Iterator[SharingWatch]:
        watch = self._supervisor.watch()
        try:
            with self._changed:
                admitted = len(self._watches) < STREAMS_MAX and not self._closing
                if admitted:
                    self._watches.add(watch)
            # False: the caller has gone before it could be listened for.
            if not context.add_callback(watch.close):
                watch.close()
            if not admitted:
                raise NotReady(
                    Reason.NODE_BUSY, f"{STREAMS_MAX} streams are open already; end one first"
                )
            yield watch
        finally:
            watch.close()
            with self._changed:
                self._watches.discard(watch)


@contextmanager
def _spelled(context: grpc.ServicerContext) -> Iterator[None]:
    """Answer with the status that the protocol has for an error."""
    try:
        yield
    except InvalidMessage as error:
        _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, error, permanent=True)
    except NotFound as error:
        _refuse(context, grpc.StatusCode.NOT_FOUND, error, permanent=True)
    except AdapterError as error:
        _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, error, permanent=error.permanent)
    except ClaimError as error:
        _abort(context, _code(error), str(error), reason=error.reason)


def _code(error: ClaimError) -> grpc.StatusCode:
    if not error.retryable:
        return grpc.StatusCode.FAILED_PRECONDITION
    match error.reason:
        case Reason.OUT_OF_TIME:
            return grpc.StatusCode.DEADLINE_EXCEEDED
        case Reason.DEVICE_BUSY | Reason.NODE_BUSY:
            return grpc.StatusCode.RESOURCE_EXHAUSTED
        case _:
            return grpc.StatusCode.UNAVAILABLE


def _refuse(
    context: grpc.ServicerContext, code: grpc.StatusCode, error: Exception, *, permanent: bool
) -> NoReturn:
    _log.warning("Call refused", code=code.name, error=str(error))
    _abort(context, code, str(error), reason=Reason.STEP_FAILED, permanent=permanent)


def _abort(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    text: str,
    *,
    reason: Reason,
    permanent: bool = False,
) -> NoReturn:
    marks = [(REASON_KEY, reason.value), *([(PERMANENT_KEY, "1")] if permanent else [])]
    context.set_trailing_metadata(tuple(marks))
    context.abort(code, " ".join(text.split())[:_DETAILS_MAX])
    raise AssertionError("abort does not return")
