"""Reading single objects, patiently: a failed prepare costs the pod a minute or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential

from dra_driver.adapters.kube_errors import Busy
from dra_driver.adapters.kube_transport import Transport, object_path
from dra_driver.errors import AdapterError
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Clock, Json

_ATTEMPT_S = 5.0
"""A request that hangs is given up after this, so that the next may reach another server."""
_LAST_ATTEMPT_S = 0.2
"""With less time than this left there is no use in asking again."""
_BACKOFF = wait_random_exponential(multiplier=0.1, max=2.0)


class PatientReader:
    """Reads objects of one kind.

    Args:
        transport: to the API server.
        root: path of the namespaces of the kind's API.
        kind: of the objects, and `resource`, their name in paths.
        clock: of deadlines.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        root: str,
        kind: str,
        resource: str,
        clock: Clock,
        sleep: Callable[[float], None],
    ) -> None:
        self._transport = transport
        self._root = root
        self._kind = kind
        self._resource = resource
        self._clock = clock
        self._retrying = Retrying(
            retry=retry_if_exception(_may_succeed_later),
            wait=_pause_s,
            stop=self._out_of_time,
            sleep=sleep,
            reraise=True,
        )

    def get(self, namespace: str, name: str, deadline: Deadline) -> Json:
        """Read one; errors as of `ports.ClaimReader`."""
        try:
            return self._attempt(namespace, name, deadline)
        except AdapterError as error:
            failures = iter((error,))

        def attempt(*asked: Any) -> Json:
            # Counting attempts takes time itself, so it begins with the first that failed.
            if (failure := next(failures, None)) is not None:
                raise failure
            return self._attempt(*asked)

        return self._retrying(attempt, namespace, name, deadline)

    def _attempt(self, namespace: str, name: str, deadline: Deadline) -> Json:
        left_s = deadline.remaining_s(self._clock.monotonic_s())
        return self._transport.call(
            "GET",
            object_path(self._root, namespace, self._resource, name),
            what=f"get {self._kind} {namespace}/{name}",
            name=name,
            kind=self._kind,
            timeout_s=max(_LAST_ATTEMPT_S, min(left_s, _ATTEMPT_S)),
        )

    def _out_of_time(self, state: RetryCallState) -> bool:
        deadline: Deadline = state.args[2]
        left_s = deadline.remaining_s(self._clock.monotonic_s())
        return left_s < state.upcoming_sleep + _LAST_ATTEMPT_S


def _may_succeed_later(error: BaseException) -> bool:
    return isinstance(error, AdapterError) and not error.permanent


def _pause_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    least_s = error.retry_after_s if isinstance(error, Busy) else 0.0
    return max(least_s, _BACKOFF(state))
