"""From a kubelet's call to one answer per claim: deadlines, errors as text, metrics, log context.

The one place where an unexpected exception is caught: a bug that one claim meets must reach that
claim's pod as text, and nobody else's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Condition
from types import TracebackType
from typing import Generic, Self, TypeVar

from dra_driver import log
from dra_driver.errors import ClaimError, ClaimRejected, GpusliceError, NotReady, Reason
from dra_driver.model.claim import ClaimRef
from dra_driver.model.deadline import Deadline
from dra_driver.ports import Clock, Recorder

T = TypeVar("T")

KUBELET_TIMEOUT_S = 45.0
"""The kubelet's deadline for prepare and unprepare (kubelet cm/dra/plugin, default timeout)."""

ANSWER_MARGIN_S = 3.0
"""Our own deadline is that much earlier, so that the answer still finds somebody listening."""

_TEXT_MAX = 4096
_SIDE_BY_SIDE = 8
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_log = log.get(__name__)


class Verb(StrEnum):
    PREPARE = "prepare"
    UNPREPARE = "unprepare"


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class Failed:
    """A claim's error; the text is never empty, because empty means success on the wire."""

    text: str


Answer = Done[T] | Failed
Work = Callable[[ClaimRef, Deadline], T]


class Calls:
    """Runs the claims of a call, and knows how many calls are in flight."""

    def __init__(self, *, clock: Clock, recorder: Recorder) -> None:
        self._clock = clock
        self._recorder = recorder
        self._changed = Condition()
        self._running = 0
        self._closing = False

    def enter(self) -> InFlight | None:
        """Count a call in; None: the process is shutting down, refuse the call."""
        with self._changed:
            if self._closing:
                return None
            self._running += 1
            return InFlight(self._leave)

    def close(self) -> None:
        """Refuse calls from now on."""
        with self._changed:
            self._closing = True

    def drained(self, timeout_s: float) -> bool:
        """Wait until no call is in flight; False: some still were when the time was over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running == 0, timeout_s)

    def deadline(self, time_remaining_s: float | None) -> Deadline:
        """When our answer is due, given how long the kubelet waits (None: it does not say)."""
        kubelet_s = KUBELET_TIMEOUT_S if time_remaining_s is None else time_remaining_s
        budget_s = min(kubelet_s, KUBELET_TIMEOUT_S) - ANSWER_MARGIN_S
        return Deadline(self._clock.monotonic_s() + max(0.0, budget_s))

    def each(
        self, verb: Verb, refs: Iterable[ClaimRef], work: Work[T], *, deadline: Deadline
    ) -> dict[str, Answer[T]]:
        """Run `work` for every claim, several side by side; answers by UID, in the call's order.

        A UID that occurs twice is one claim.
        """
        claims: dict[str, ClaimRef] = {}
        for ref in refs:
            claims.setdefault(ref.uid, ref)
        ordered = tuple(claims.values())
        one = partial(self._one, verb, work, deadline)
        if len(ordered) <= 1:
            return {ref.uid: one(ref) for ref in ordered}
        # A pool per call: in a shared one, an unprepare could queue behind the prepare that waits
        # for it.
        workers = min(len(ordered), _SIDE_BY_SIDE)
        with ThreadPoolExecutor(workers, thread_name_prefix=f"dra-{verb}") as pool:
            futures = {ref.uid: pool.submit(copy_context().run, one, ref) for ref in ordered}
            return {uid: future.result() for uid, future in futures.items()}

    def _one(self, verb: Verb, work: Work[T], deadline: Deadline, ref: ClaimRef) -> Answer[T]:
        started_s = self._clock.monotonic_s()
        with log.context(operation=verb.value, claim=str(ref), claim_uid=ref.uid):
            answer, outcome = _attempt(verb, work, deadline, ref)
            seconds = self._clock.monotonic_s() - started_s
            if isinstance(answer, Done):
                _log.info("Claim done", seconds=round(seconds, 3))
        self._recorder.count("claim_operations_total", operation=verb.value, outcome=outcome)
        self._recorder.observe("claim_operation_seconds", seconds, operation=verb.value)
        return answer

    def _leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()


class InFlight:
    """One counted call; leaving the block counts it out."""

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()


def notify(listener: Callable[[], None]) -> None:
    """Call a listener on the kubelet's thread; its failure is ours and never reaches the kubelet.

    A kubelet of 1.35 and later de-registers a driver that answers a notification with an error.
    """
    try:
        listener()
    except Exception:  # noqa: BLE001
        _log.exception("Listener of the registration failed")


def still_listening(ref: ClaimRef, *, active: bool) -> None:
    """Refuse to start work for a call that was given up while it was queued.

    Started late, a prepare could run behind the unprepare of the same claim and leak its devices.

    Raises:
        NotReady: the kubelet gave up.
    """
    if not active:
        raise NotReady(Reason.OUT_OF_TIME, f"claim {ref}: the kubelet gave up before work began")


def _attempt(verb: Verb, work: Work[T], deadline: Deadline, ref: ClaimRef) -> tuple[Answer[T], str]:
    """The answer and its outcome as a metric knows it: "Ok" or a reason."""
    try:
        return Done(work(_checked(ref), deadline)), "Ok"
    except ClaimError as error:
        text, reason = _wire_text(str(error) or error.reason), error.reason
        _log.warning("Claim failed", reason=reason.value, retryable=error.retryable, error=text)
    except GpusliceError as error:
        text, reason = _wire_text(f"cannot {verb} claim {ref}: {error}"), Reason.STEP_FAILED
        _log.warning("Claim failed", reason=reason.value, retryable=True, error=text)
    except Exception as error:  # noqa: BLE001 - the pod must learn of it, its neighbours not
        text, reason = _wire_text(_bug(verb, ref, error)), Reason.INTERNAL
        _log.exception("Claim failed because of a bug", reason=reason.value)
    return Failed(text), reason.value


def _checked(ref: ClaimRef) -> ClaimRef:
    # UIDs become file names, so nothing that is no UID passes.
    if not _UID.fullmatch(ref.uid):
        raise ClaimRejected(
            Reason.INVALID_CONFIG,
            f"claim {ref} has the UID {ref.uid!r}, which is not a Kubernetes UID; nothing was done",
        )
    return ref


def _bug(verb: Verb, ref: ClaimRef, error: Exception) -> str:
    return (
        f"cannot {verb} claim {ref} because of a bug in the driver"
        f" ({type(error).__name__}: {error}); the driver's log has the details"
    )


def _wire_text(text: str) -> str:
    """One line of valid UTF-8, for the pod's Events; never empty, which would mean success."""
    line = " ".join(text.encode("utf-8", "replace").decode().split()) or "failed without a reason"
    return line if len(line) <= _TEXT_MAX else f"{line[: _TEXT_MAX - 3]}..."
