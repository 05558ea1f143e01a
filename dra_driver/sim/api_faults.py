"""Faults that a test or a demo injects into the simulated API server."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the next requests that match, instead of an answer or before it.

    Attributes:
        verb: get, list, watch, create, update, delete or deletecollection; empty matches all.
        resource: plural name, or "version"; empty matches all.
        times: how many requests it hits.
        delay_s: waits so long first; with `status` 0 and no `reset` the request is served then.
        status: answers with this HTTP status.
        reason: of the Status object.
        retry_after_s: sends Retry-After.
        raw: the body of that answer, instead of a Status object.
        reset: closes the connection without an answer.
        gates: serves the request as a server with these feature gates would; dry runs are spared,
            so that the server seems to keep what it then drops.
    """

    verb: str = ""
    resource: str = ""
    times: int = 1
    delay_s: float = 0.0
    status: int = 0
    reason: str = "InternalError"
    retry_after_s: int | None = None
    raw: bytes = b""
    reset: bool = False
    gates: frozenset[str] | None = None

    def matches(self, verb: str, resource: str, *, dry_run: bool) -> bool:
        spared = dry_run and self.gates is not None
        return self.verb in {"", verb} and self.resource in {"", resource} and not spared


class Faults:
    """Faults in the order in which they were added; each request takes the first that matches."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: list[tuple[Fault, int]] = []

    def add(self, *faults: Fault) -> None:
        with self._lock:
            self._left.extend((fault, fault.times) for fault in faults)

    def clear(self) -> None:
        with self._lock:
            self._left.clear()

    def pending(self) -> int:
        """How many requests are still to be hit."""
        with self._lock:
            return sum(times for _, times in self._left)

    def take(self, verb: str, resource: str, *, dry_run: bool) -> Fault | None:
        with self._lock:
            for position, (fault, times) in enumerate(self._left):
                if fault.matches(verb, resource, dry_run=dry_run):
                    self._left[position : position + 1] = [(fault, times - 1)] if times > 1 else []
                    return fault
        return None
