"""The kubelet's side of one driver: raw calls over its sockets, timed from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any

import grpc

from dra_api.kubelet import dra_v1_pb2 as dra
from dra_api.kubelet import pluginregistration_v1_pb2 as registration

_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_TIMEOUT_S = 45.0
_POLL_S = 0.001
Claims = Sequence[dra.Claim]


class Kubelet:
    """A connection to a driver that has registered."""

    def __init__(self, endpoint: str) -> None:
        # A pool of its own, so that drivers do not share what C-core keeps of a target.
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel(f"unix:{endpoint}", options=options)
        # Requests are spelled before the clock runs and answers read after it.
        self._prepare: Any = self._channel.unary_unary(f"{_SERVICE}/NodePrepareResources")
        self._unprepare: Any = self._channel.unary_unary(f"{_SERVICE}/NodeUnprepareResources")

    def close(self) -> None:
        self._channel.close()

    def prepare(self, claims: Claims) -> float:
        """Prepare claims in one call and give its seconds."""
        return self._timed(self._prepare, _prepare_request(claims), _check_prepared)

    def unprepare(self, claims: Claims) -> float:
        """Unprepare claims in one call and give its seconds."""
        return self._timed(self._unprepare, _unprepare_request(claims), _check_unprepared)

    def prepare_at_once(self, claims: Claims) -> float:
        """Prepare each claim in a call of its own, all at once; seconds until the last answer."""
        requests = [_prepare_request([claim]) for claim in claims]
        return self._at_once(self._prepare, requests, _check_prepared)

    def unprepare_at_once(self, claims: Claims) -> float:
        """Like `prepare_at_once`."""
        requests = [_unprepare_request([claim]) for claim in claims]
        return self._at_once(self._unprepare, requests, _check_unprepared)

    def _timed(self, call: Any, request: bytes, check: Any) -> float:
        started = perf_counter()
        answer = call(request, timeout=_TIMEOUT_S)
        seconds = perf_counter() - started
        check(answer)
        return seconds

    def _at_once(self, call: Any, requests: list[bytes], check: Any) -> float:
        started = perf_counter()
        pending = [call.future(request, timeout=_TIMEOUT_S) for request in requests]
        answers = [each.result() for each in pending]
        seconds = perf_counter() - started
        for answer in answers:
            check(answer)
        return seconds


def register(folder: Path, *, timeout_s: float = 30.0) -> tuple[str, float]:
    """Wait for a registration socket, ask it as the kubelet does, and confirm.

    Returns:
        The DRA endpoint, and the time (of perf_counter) at which GetInfo was answered.
    """
    socket = _wait_for_socket(folder, timeout_s)
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        service = "/pluginregistration.Registration"
        get_info: Any = channel.unary_unary(f"{service}/GetInfo")
        answer = get_info(b"", timeout=timeout_s, wait_for_ready=True)
        answered_at_s = perf_counter()
        status = registration.RegistrationStatus(plugin_registered=True)
        notify: Any = channel.unary_unary(f"{service}/NotifyRegistrationStatus")
        notify(status.SerializeToString(), timeout=timeout_s)
    return registration.PluginInfo.FromString(answer).endpoint, answered_at_s


def _wait_for_socket(folder: Path, timeout_s: float) -> Path:
    never, end_s = Event(), perf_counter() + timeout_s
    while perf_counter() < end_s:
        for path in folder.iterdir():
            if path.is_socket() and not path.name.startswith("."):
                return path
        never.wait(_POLL_S)
    raise AssertionError(f"no registration socket in {folder} within {timeout_s} s")


def _prepare_request(claims: Claims) -> bytes:
    text: bytes = dra.NodePrepareResourcesRequest(claims=claims).SerializeToString()
    return text


def _unprepare_request(claims: Claims) -> bytes:
    text: bytes = dra.NodeUnprepareResourcesRequest(claims=claims).SerializeToString()
    return text


def _check_prepared(answer: bytes) -> None:
    claims = dra.NodePrepareResourcesResponse.FromString(answer).claims
    assert claims, "the answer has no claim"
    for uid, each in claims.items():
        assert not each.error, f"claim {uid}: {each.error}"
        assert each.devices, f"claim {uid} got no device"


def _check_unprepared(answer: bytes) -> None:
    claims = dra.NodeUnprepareResourcesResponse.FromString(answer).claims
    assert claims, "the answer has no claim"
    for uid, each in claims.items():
        assert not each.error, f"claim {uid}: {each.error}"
