"""`ShareSupervisor`, `SharingStates` and `ClientTerminator` by calls to `gpuslice mpsd`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

import grpc
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential
from tenacity.nap import sleep_using_event

from dra_api.mpsd import mpsd_v1alpha1_pb2 as mpsd
from dra_api.mpsd import mpsd_v1alpha1_pb2_grpc as mpsd_grpc
from dra_driver.adapters.mpsd_client_errors import Away, away, translated, verdict_of
from dra_driver.adapters.mpsd_messages import apply_request, states_of
from dra_driver.errors import AdapterError, NotReady, Reason
from dra_driver.model.deadline import Deadline
from dra_driver.model.device import GpuUuid, Inventory
from dra_driver.model.mps import GpuSharing
from dra_driver.model.share import GpuShare, ShareAbility, Sharing
from dra_driver.plan.mps_abilities import supervised_abilities
from dra_driver.ports import Clock

T = TypeVar("T")

READY_S = 10.0
"""How long a call waits for an mpsd that is away: it restarts within seconds."""

_FRESH_S = 1.0
_GET_S = 2.0
_RETRY_FIRST_S, _RETRY_CAP_S = 0.05, 0.5
_OPTIONS = (
    # One connection for the process's life: it comes back as soon as mpsd does.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    # A process that is stopped or hangs keeps its socket open; a stream would wait for ever.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
)


class MpsdClient:
    """One process's connection to the supervisor; it is made when first needed.

    Args:
        socket: of `gpuslice mpsd`.
        clock: for deadlines.
        burst_allowed: what `abilities` tells of every GPU.
        expose_folder: containers see all sockets, whatever was proved.
        ready_s: how long a call waits for an mpsd that is away, if its deadline allows.
    """

    def __init__(
        self,
        socket: Path,
        *,
        clock: Clock,
        burst_allowed: bool,
        expose_folder: bool = False,
        ready_s: float = READY_S,
    ) -> None:
        self._socket = socket
        self._clock = clock
        self._burst_allowed = burst_allowed
        self._expose_folder = expose_folder
        self._ready_s = ready_s
        self._closing = Event()
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._stub = mpsd_grpc.MpsdStub(self._channel)
        self._states = _KnownStates()

    def close(self) -> None:
        """End all calls and streams."""
        self._closing.set()
        self._channel.close()

    def apply(self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline) -> None:
        """Apply the MPS shares among `shares`; the others need nobody to enforce them."""
        self._call(self._stub.Apply, _wanted(gpu, shares), deadline, what=_refusal(gpu))

    def begin(
        self, gpu: GpuUuid, shares: tuple[GpuShare, ...], deadline: Deadline
    ) -> Callable[[], None]:
        """As the port says; where mpsd is away, waiting is what tries again."""
        request, what = _wanted(gpu, shares), _refusal(gpu)
        try:
            call = self._stub.Apply.future(request, timeout=self._left_s(deadline))
        except ValueError as error:
            raise self._closed() from error

        def wait() -> None:
            try:
                call.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as error:
                if self._closing.is_set():
                    raise self._closed() from error
                found = translated(verdict_of(error), what=what, socket=self._socket)
                if not isinstance(found, Away):
                    raise found from error
                self._call(self._stub.Apply, request, deadline, what=what)

        return wait

    def terminate_client(self, gpu: GpuUuid, pid: int, deadline: Deadline) -> None:
        request = mpsd.TerminateClientRequest(gpu_uuid=gpu, pid=pid)
        what = f"process {pid} keeps GPU {gpu}"
        try:
            self._call(self._stub.TerminateClient, request, deadline, what=what)
        except NotReady as error:
            raise AdapterError(str(error)) from error

    def abilities(self, inventory: Inventory) -> tuple[ShareAbility, ...]:
        """As the port says; while mpsd is away, by what it told last."""
        states = self._newest()
        return supervised_abilities(
            inventory,
            states,
            burst_allowed=self._burst_allowed,
            expose_folder=self._expose_folder,
        )

    def watch(self) -> MpsdWatch:
        """Begin a stream; where mpsd is away, iterating says so."""
        try:
            call = self._stub.Watch(mpsd.WatchRequest())
        except ValueError as error:
            raise self._closed() from error
        return MpsdWatch(call, seen=self._seen, lost=self._lost)

    def _newest(self) -> tuple[GpuSharing, ...]:
        now_s = self._clock.monotonic_s()
        if self._states.due(now_s):
            try:
                reply = self._stub.Get(mpsd.GetRequest(), timeout=_GET_S)
                self._seen(states_of(reply))
            except grpc.RpcError as error:
                self._states.missed(now_s)
                if self._states.value is None:
                    raise self._lost(error) from error
            except ValueError as error:
                raise self._closed() from error
        if self._states.value is None:
            raise AdapterError(away(self._socket, "it has not answered yet"))
        return self._states.value

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[Any, T],
        request: Any,
        deadline: Deadline,
        *,
        what: str,
    ) -> T:
        """Call, over restarts of mpsd; all its calls can be repeated."""
        ready_s = min(self._ready_s, self._left_s(deadline))
        attempts = Retrying(
            retry=retry_if_exception_type(Away),
            stop=stop_after_delay(ready_s),
            wait=wait_exponential(multiplier=_RETRY_FIRST_S, max=_RETRY_CAP_S),
            sleep=sleep_using_event(self._closing),
            reraise=True,
        )
        try:
            answer: T = attempts(self._attempt, method, request, deadline, what)
        except Away as error:
            text = f"{what} now: {away(self._socket, str(error))}"
            raise NotReady(Reason.STATE_UNAVAILABLE, text) from error
        return answer

    def _attempt(
        self,
        method: grpc.UnaryUnaryMultiCallable[Any, T],
        request: Any,
        deadline: Deadline,
        what: str,
    ) -> T:
        try:
            return method(request, timeout=self._left_s(deadline))
        except grpc.RpcError as error:
            raise translated(verdict_of(error), what=what, socket=self._socket) from error
        except ValueError as error:
            raise self._closed() from error

    def _seen(self, states: tuple[GpuSharing, ...]) -> None:
        self._states.put(states, self._clock.monotonic_s())

    def _lost(self, error: grpc.RpcError) -> AdapterError:
        return AdapterError(away(self._socket, verdict_of(error).text))

    def _closed(self) -> AdapterError:
        return AdapterError(f"the connection to {self._socket} is closed: this process is stopping")

    def _left_s(self, deadline: Deadline) -> float:
        return deadline.remaining_s(self._clock.monotonic_s())


def _wanted(gpu: GpuUuid, shares: tuple[GpuShare, ...]) -> mpsd.ApplyRequest:
    return apply_request(gpu, [share for share in shares if share.sharing is Sharing.MPS])


def _refusal(gpu: GpuUuid) -> str:
    return f"GPU {gpu} cannot be shared"


class MpsdWatch:
    """A `SharingWatch` on a stream."""

    def __init__(
        self,
        call: Any,
        *,
        seen: Callable[[tuple[GpuSharing, ...]], None],
        lost: Callable[[grpc.RpcError], AdapterError],
    ) -> None:
        self._call = call
        self._seen = seen
        self._lost = lost
        self._closed = Event()

    def __iter__(self) -> Iterator[tuple[GpuSharing, ...]]:
        try:
            for message in self._call:
                states = states_of(message)
                self._seen(states)
                yield states
        except grpc.RpcError as error:
            if not self._closed.is_set():
                raise self._lost(error) from error

    def close(self) -> None:
        self._closed.set()
        self._call.cancel()


class _KnownStates:
    """What was heard last, and when it is time to ask again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._due_s = 0.0
        self.value: tuple[GpuSharing, ...] | None = None

    def put(self, states: tuple[GpuSharing, ...], now_s: float) -> None:
        with self._lock:
            self.value = states
            self._due_s = now_s + _FRESH_S

    def missed(self, now_s: float) -> None:
        """Let nobody ask at once again: each would wait for the same silence."""
        with self._lock:
            self._due_s = now_s + _FRESH_S

    def due(self, now_s: float) -> bool:
        with self._lock:
            return now_s >= self._due_s
