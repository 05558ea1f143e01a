"""Answers of an API server that are no success, as errors of this package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dra_driver.errors import AdapterError, Conflict, Forbidden, NotFound, WatchExpired

_TEXT_MAX = 500
_TRANSIENT = frozenset({401, 404, 408, 429})
"""404 without the object's name: the API is not served yet, or something stands in between."""
_SERVER_ERRORS = 500

_WAY_OUT = {
    400: "the server does not understand the request: check that it is Kubernetes 1.34 or later",
    401: "check the token of the kubeconfig or of the pod's service account",
    404: "check that the server is Kubernetes 1.34 or later and that its address is right",
    422: "the server refuses the object's content: report it with this text",
    429: "the server is busy, it is asked again",
}


class Busy(AdapterError):  # noqa: N818 - reads as what the server said
    """The server asked for a pause.

    Args:
        text: which server, what for.
        retry_after_s: how long.
    """

    def __init__(self, text: str, *, retry_after_s: float) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s


def answer_error(
    status: int, body: bytes, *, what: str, name: str, retry_after: str | None
) -> AdapterError:
    """Turn an answer into the error that callers tell apart.

    Args:
        status: HTTP status, 400 or above.
        body: a Status object, or whatever stood in the way sent.
        what: the request, for people: "get ResourceClaim a/b at https://…".
        name: of the object that was asked for; empty for collections. Only a Status that names it
            says that it does not exist: a proxy's 404 and an API group that is not served do not.
        retry_after: the header.
    """
    answer = status_object(body)
    message = str(answer.get("message") or body[:_TEXT_MAX].decode(errors="replace")).strip()
    text = f"{what}: {status} {answer.get('reason', '')}: {message[:_TEXT_MAX]}"
    missing = bool(name) and (answer.get("details") or {}).get("name") == name
    match status:
        case 404 if missing:
            return NotFound(f"{what}: there is no such object")
        case 403:
            return Forbidden(f"{text}; grant the right to the driver's service account")
        case 409:
            return Conflict(text)
        case 410:
            return WatchExpired(text)
        case _:
            return _other_error(status, text, retry_after)


def watch_error(status: Mapping[str, Any], *, what: str) -> AdapterError:
    """Turn an ERROR event of a watch into an error."""
    code = status.get("code")
    if not isinstance(code, int):
        code = _SERVER_ERRORS
    body = json.dumps(status).encode()
    return answer_error(code, body, what=what, name="", retry_after=None)


def _other_error(status: int, text: str, retry_after: str | None) -> AdapterError:
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return Busy(f"{text}; it is asked again", retry_after_s=float(retry_after))
    way_out = _WAY_OUT.get(status, "it is asked again" if status >= _SERVER_ERRORS else "")
    permanent = status < _SERVER_ERRORS and status not in _TRANSIENT
    return AdapterError(f"{text}; {way_out}".rstrip("; "), permanent=permanent)


def status_object(body: bytes) -> Mapping[str, Any]:
    """The Status object that a body holds; empty where it holds none."""
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) and answer.get("kind") == "Status" else {}
