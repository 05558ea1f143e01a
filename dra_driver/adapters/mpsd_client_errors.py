"""What the status of a call to `gpuslice mpsd` means."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc import StatusCode

from dra_driver.errors import AdapterError, GpusliceError, NotFound, NotReady, Reason

_REASON_KEY, _PERMANENT_KEY = "gpuslice-reason", "gpuslice-permanent"
_REASONS = {each.value: each for each in Reason}
_LATER = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.RESOURCE_EXHAUSTED)


class Away(GpusliceError):  # noqa: N818 - reads as the state that it is
    """Nobody serves the socket now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """An error of a call.

    Attributes:
        reason: the service's; None where the connection failed.
        permanent: the same request can never succeed.
    """

    code: StatusCode
    text: str
    reason: Reason | None
    permanent: bool


def verdict_of(error: Any) -> Verdict:
    """Read what a stub raised: it is a Call too, which the types of grpcio cannot say."""
    marks = dict(error.trailing_metadata() or ())
    return Verdict(
        code=error.code(),
        text=str(error.details() or error.code().name),
        reason=_REASONS.get(str(marks.get(_REASON_KEY))),
        permanent=_PERMANENT_KEY in marks,
    )


def translated(verdict: Verdict, *, what: str, socket: Path) -> GpusliceError:
    """Give the error of a port; Away where the call is worth another try at once."""
    if verdict.reason is None:
        return _of_connection(verdict, what, socket)
    if verdict.reason is Reason.SHUTTING_DOWN:
        return Away(verdict.text)
    # The service's own texts say what they are about.
    if verdict.code is StatusCode.NOT_FOUND:
        return NotFound(verdict.text)
    if verdict.code in _LATER:
        return NotReady(verdict.reason, verdict.text)
    return AdapterError(verdict.text, permanent=verdict.permanent)


def away(socket: Path, cause: str) -> str:
    return (
        f"gpuslice mpsd does not serve {socket} ({cause}); see whether the pod of DaemonSet"
        " gpuslice-mpsd runs on this node, and its log"
    )


def _of_connection(verdict: Verdict, what: str, socket: Path) -> GpusliceError:
    match verdict.code:
        case StatusCode.UNAVAILABLE:
            return Away(verdict.text)
        case StatusCode.DEADLINE_EXCEEDED:
            cause = away(socket, "it did not answer in time")
            return NotReady(Reason.OUT_OF_TIME, f"{what} now: {cause}")
        case _:
            return AdapterError(
                f"{what}: {verdict.text} ({verdict.code.name}); see the log of gpuslice mpsd"
            )
